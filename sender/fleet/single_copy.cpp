#include <bascule/sender/fleet/single_copy.h>

#include <algorithm>
#include <set>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status loan_lapsed(const Endpoint& endpoint, Version version) {
  return deadline_exceeded("version ", version, ": its loan was out for longer than loan_timeout (",
                           absl::FormatDuration(endpoint.loan_timeout), "), and the workers continue, poisoned; the ",
                           "next loan() and publish() mend them: write in less time, or raise loan_timeout");
}

std::optional<Grant> SingleCopy::take() {
  std::vector<Holder> yielding;
  for (const auto& [id, member] : books_.roster.members()) {
    if (member.catch_up() && !books_.slots.leases_of(member.holder()).empty()) return std::nullopt;  // it reads
    if (member.welcomed()) yielding.push_back(member.holder());
  }
  return books_.slots.take_single_copy(yielding);
}

// A worker that may copy (its greeting tells only part of these) is waited for: it releases the slot soon.
absl::Status SingleCopy::check(const std::vector<WorkerId>& addressed) const {
  std::string left_out;
  for (const auto& [id, member] : books_.roster.members()) {
    const bool may_copy = member.hello.casts || member.hello.expected != nullptr;
    if (!member.welcomed() || may_copy || std::ranges::find(addressed, id) != addressed.end()) continue;
    if (!books_.slots.leases_of(member.holder()).empty())
      absl::StrAppend(&left_out, left_out.empty() ? "" : ", ", member.name());
  }
  if (left_out.empty()) return absl::OkStatus();
  return failed_precondition("with slots=1 the trainer writes the memory that ", left_out,
                             " also reads in place, so a version cannot leave it out; name all workers that read in "
                             "place, or none");
}

void SingleCopy::let_write(InFlightVersion& sent, FleetTurn& turn) {
  if (!sent.round.yielded() || sent.written) return;
  ask_those_that_came_back(sent, turn);
  if (!sent.round.yielded() || !in_the_way(sent).empty()) return;
  books_.limit(sent, Limit::loan(books_.endpoint, turn.now), turn);
  turn.act(action::MayWrite{sent.version()});
  sent.written = true;
}

// Holders whose workers do not take part: they left, and may still be reading.
std::vector<Holder> SingleCopy::in_the_way(const InFlightVersion& sent) {
  std::set<Holder> aside;
  for (const WorkerId id : sent.round.remaining())
    if (const Member* member = books_.roster.find(id)) aside.insert(member->holder());
  std::vector<Holder> holders = books_.slots.holders_of(sent.publication().slot);
  std::erase_if(holders, [&](Holder holder) { return aside.contains(holder); });
  return holders;
}

std::string SingleCopy::readers() const {
  std::string readers;
  for (const SlotId slot : books_.slots.all())
    for (const Holder holder : books_.slots.holders_of(slot)) {
      const auto yields = [&](const auto& entry) {
        return entry.second.holder() == holder && entry.second.welcomed() && !entry.second.catch_up();
      };
      if (std::ranges::any_of(books_.roster.members(), yields)) continue;
      absl::StrAppend(&readers, readers.empty() ? "" : ", ", books_.roster.name_of(holder));
    }
  return readers;
}

// A worker may have been evicted and come back since the slot was granted. It still reads the slot, so it takes part,
// with its group.
void SingleCopy::ask_those_that_came_back(InFlightVersion& sent, FleetTurn& turn) {
  if (!sent.names.empty()) return;
  for (const Holder holder : in_the_way(sent)) {
    Member* const back = books_.roster.welcomed(holder);
    if (back == nullptr) continue;
    for (Member* rank : books_.roster.ranks_of(*back)) {
      if (!rank->welcomed() || sent.owed.contains(rank->id)) continue;
      std::set<WorkerId> owed{rank->id};
      if (!sent.round.has(rank->id)) sent.round.join({rank->id, rank->name(), rank->group()});
      books_.leave_time(sent, turn);
      books_.tell_prepare({rank}, sent.publication(), turn);
      sent.owed.merge(owed);
    }
  }
}

void SingleCopy::judge(Clock::time_point at, FleetTurn& turn) {
  InFlightVersion* const sent = books_.versions.sent();
  if (sent == nullptr || sent->round.limit().until > at || !sent->round.yielded() || sent->version() == came_back_)
    return;
  if (sent->written) return turn.act(action::EndLoan{sent->version()});
  std::string readers;
  for (const Holder holder : in_the_way(*sent))
    absl::StrAppend(&readers, readers.empty() ? "" : ", ", books_.roster.name_of(holder));
  turn.going_on.insert(sent->ticket);
  sent->round.abort(deadline_exceeded("the single copy is still read by ", readers, ", which did not yield within ",
                                      sent->round.limit().text(), "; stop or restart what reads it"));
}

// The workers are let go, and know that the memory they read may change at any time. The slot stays the trainer's until
// the loan comes back.
void SingleCopy::note(event::LoanEnded& ended, FleetTurn& turn) {
  InFlightVersion* const sent = books_.versions.sent();
  if (sent == nullptr || sent->version() != ended.version) return;
  if (ended.in_time) {
    came_back_ = ended.version;
    return;
  }
  turn.going_on.insert(sent->ticket);
  absl::Status lapsed = loan_lapsed(books_.endpoint, ended.version);
  sent->torn = true;
  sent->round.abort(std::move(lapsed));
}

}  // namespace bascule::inline v0
