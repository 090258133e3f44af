#include <bascule/sender/fleet/versions.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

InFlightVersion& Versions::begin(Round round, bool is_catch_up) {
  const Ticket ticket = next_++;
  InFlightVersion& version =
      under_way_
          .emplace(ticket, InFlightVersion{.ticket = ticket, .round = std::move(round), .is_catch_up = is_catch_up})
          .first->second;
  if (!is_catch_up) sent_ = ticket;
  return version;
}

void Versions::end(Ticket ticket) {
  under_way_.erase(ticket);
  if (sent_ == ticket) sent_.reset();
}

InFlightVersion* Versions::find(Ticket ticket) {
  const auto found = under_way_.find(ticket);
  return found == under_way_.end() ? nullptr : &found->second;
}

InFlightVersion* Versions::sent() { return sent_ ? find(*sent_) : nullptr; }

std::vector<Ticket> Versions::tickets() const {
  std::vector<Ticket> all;
  for (const auto& [ticket, each] : under_way_) all.push_back(ticket);
  return all;
}

// ---- deadlines ----

std::optional<Clock::time_point> Versions::wait_until(Clock::time_point until) const {
  if (until == Clock::time_point::max() || (wakes_at_ && *wakes_at_ <= until)) return std::nullopt;
  return until;
}

std::vector<Ticket> Versions::due(Clock::time_point now) const {
  std::vector<Ticket> due;
  for (const auto& [ticket, each] : under_way_)
    if (const auto at = each.round.next_deadline(); at && *at <= now) due.push_back(ticket);
  return due;
}

std::optional<Clock::time_point> Versions::wake_behind(Clock::time_point now) const {
  std::optional<Clock::time_point> next;
  for (const auto& [ticket, each] : under_way_)
    if (const auto at = each.round.next_deadline(now)) next = next ? std::min(*next, *at) : at;
  return next && (!wakes_at_ || *next < *wakes_at_) ? next : std::nullopt;
}

std::optional<SlotId> Versions::end_delivery(Ticket ticket) {
  const auto ended = delivered_from_.extract(ticket);
  return ended ? std::optional(ended.mapped()) : std::nullopt;
}

// ---- numbers ----

namespace {
constexpr Version kMostAhead = Version{1} << 40;
}  // namespace

Version Versions::most_claimed() const { return std::min(used_ + kMostAhead, kLastVersion - kMostAhead); }

absl::Status Versions::claim(Version version, Version most) {
  if (version > used_ && version > most)
    return invalid_argument(
        "it claims version ", version, "; expected at most ", kMostAhead, " above the last one, ", used_,
        most < kLastVersion - kMostAhead ? "" : ", and none near the highest possible number", "; restart it");
  use(version);
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
