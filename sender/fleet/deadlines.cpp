// Fleet: what takes too long. What a worker said in time may still wait in its socket, so it is heard before it is
// judged.
#include <algorithm>
#include <iterator>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Fleet::note(event::Tick&) {
  versions_.woken();
  judged_at_ = now_;
  std::vector<WorkerId> awaited;
  for (const Ticket ticket : versions_.due(judged_at_))
    std::ranges::copy(versions_.find(ticket)->round.late(judged_at_), std::back_inserter(awaited));
  std::erase_if(awaited, [this](WorkerId id) { return roster_.find(id) == nullptr; });
  if (awaited.empty()) return judge();
  act(action::ReadQueued{std::move(awaited)});
}

void Fleet::note(event::AllRead&) { judge(); }

void Fleet::judge() {
  std::map<WorkerId, absl::Status> late;
  for (const Ticket ticket : versions_.due(judged_at_)) {
    InFlightVersion& version = *versions_.find(ticket);
    Round& round = version.round;
    const bool flips = round.phase() == Round::Phase::kCommitting;
    const std::string limit = absl::FormatDuration(flips ? endpoint_.flip_timeout : endpoint_.timeout);
    for (const WorkerId id : round.late(judged_at_))
      late.emplace(id, round.is_loading(id)
                           ? deadline_exceeded("version ", version.version(), ": its engine has not loaded it within ",
                                               absl::FormatDuration(endpoint_.load_timeout))
                           : deadline_exceeded("version ", version.version(), ": no ",
                                               flips ? "ack" : "word that it is prepared", " within ", limit));
    if (round.phase() != Round::Phase::kDelivering) continue;
    if (version.is_catch_up) {
      for (const WorkerId id : round.remaining())
        late.emplace(id, deadline_exceeded("version ", version.version(), " was not delivered within ", limit));
    } else {
      round.abort(deadline_exceeded("deliver version ", version.version(), ": not done within ", limit));
      going_on_.insert(ticket);
    }
  }
  for (const auto& [id, why] : late) evict(id, why);
  const std::vector<Ticket> due = versions_.due(judged_at_);
  work();                          // without them readers may all have yielded
  for (const Ticket ticket : due)  // of those that are left, the next whose time to load ends
    if (InFlightVersion* const version = versions_.find(ticket))
      if (const auto loads = version->round.next_load_deadline(); loads && *loads > judged_at_)
        wait_until(*version, *loads);
  judge_single_copy();
  if (const auto at = versions_.wake_behind(judged_at_)) act(action::WakeAt{*at});
}

void Fleet::wait_until(InFlightVersion& version, Clock::time_point until) {
  if (const auto at = versions_.wait_until(version, until)) act(action::WakeAt{*at});
}

// Gives time to a step that begins only now, after a wait for other workers.
void Fleet::leave_time(InFlightVersion& version) {
  const absl::Duration least = std::min(endpoint_.timeout, endpoint_.flip_timeout);
  wait_until(version, std::max(version.until, now_ + absl::ToChronoNanoseconds(least)));
}

}  // namespace bascule::inline v0
