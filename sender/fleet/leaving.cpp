// Fleet: what members leave behind: versions that they were told of, leases, their groups.
#include <utility>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

// All of them, before any version goes on: the rest of a group must not be told to flip without it.
void Fleet::let_leave() {
  while (!leaving_.empty()) {
    const Leaving leaving = std::move(leaving_.front());
    leaving_.pop_front();
    leave(leaving);
  }
}

void Fleet::leave(const Leaving& leaving) {
  const Member member = roster_.remove(leaving.id);
  act(action::Close{.id = member.id, .why = leaving.why, .final = leaving.final});
  log(cat("gave up ", member.name(), ": ", message_of(leaving.why)));
  behind_.erase(member.id);

  // Its leases stay until its pipe hangs up: it may still be reading. Over TCP there is no pipe: they end with its
  // connection.
  InFlightVersion* const sent = versions_.sent();
  if (const InFlightVersion* version = member.catch_up() ? versions_.find(*member.catch_up()) : nullptr)
    if (version->leased.contains(member.id)) drop_lease(member, *version);
  if (sent != nullptr && !slots_.single_copy()) drop_lease(member, *sent);
  if (member.releasing) slots_.release(*member.releasing, member.holder());  // of one that was aborted
  if (member.connection_kind == ConnectionKind::kTcp && member.welcomed()) {
    slots_.end_leases(member.holder());
    roster_.forget(member.holder());
  }
  slots_.left(member.holder());

  leave_group(member, leaving.why);
  leave_rounds(member, leaving.why);
  writer_waits_ = true;  // its lease may have been the last on a slot
}

// Ends its lease for a version, unless it was told to flip to that version, or any rank of its group was. Otherwise it
// drops all that it has of the version.
void Fleet::drop_lease(const Member& member, const InFlightVersion& version) {
  const Round& round = version.round;
  const bool told = member.group().empty() ? round.was_told(member.id) : round.phase() == Round::Phase::kCommitting;
  const SlotId slot = version.publication().slot;
  if (round.has(member.id) && !told && !member.says_it_holds(slot) && round.under_way())
    slots_.release(slot, member.holder());
}

void Fleet::leave_rounds(const Member& member, const absl::Status& why) {
  const auto lose = [&](InFlightVersion* version) {
    if (version == nullptr || !version->round.has(member.id)) return;
    if (version->round.under_way()) version->round.lost(member.id, why);
    going_on_.insert(version->ticket);
  };
  lose(versions_.sent());
  if (member.catch_up()) lose(versions_.find(*member.catch_up()));
}

// A group is evicted whole. Ranks that only wait for the others go on waiting.
void Fleet::leave_group(const Member& member, const absl::Status& why) {
  if (member.group().empty() || member.state() == Member::State::kParked) return;
  for (auto* const rank : roster_.group(member.group())) {
    if (rank->state() == Member::State::kAdmitted) {
      roster_.move(*rank, Member::State::kParked);
    } else if (rank->state() != Member::State::kParked) {
      evict(rank->id, unavailable("its group lost rank ", member.hello.rank, ": ", message_of(why)));
    }
  }
}

}  // namespace bascule::inline v0
