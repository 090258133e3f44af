#include <bascule/sender/fleet/departures.h>

#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Departures::note(event::HungUp& hung_up, FleetTurn&) { evict(hung_up.id, hung_up.why); }

// Giving up a worker is costly for the scheme, so that worker may not come back at once.
void Departures::note(event::GivenUp& given_up, FleetTurn& turn) {
  if (const Member* member = books_.roster.find(given_up.id); member != nullptr && !member->departing)
    books_.roster.pause(member->name(), turn.now);
  evict(given_up.id, given_up.why);
}

// If its connection has not hung up yet, the member leaves first: a version that begins in between would lease it a
// slot that is never released.
void Departures::note(event::HolderGone& gone, FleetTurn& turn) {
  if (const Member* member = books_.roster.welcomed(gone.holder))
    evict(member->id, gone.ended ? unavailable("its process is gone")
                                 : unavailable("its lease pipe was closed, so its leases end: its process is ending, "
                                               "had no descriptor left to take the pipe with (ulimit -n), or closed "
                                               "descriptors that it had not opened, which it must not"));
  let_leave(turn);
  books_.slots.end_leases(gone.holder);
  books_.roster.forget(gone.holder);
  turn.writer_waits = true;
}

void Departures::note(event::LeftRunning& left, FleetTurn& turn) {
  if (!books_.slots.left_behind().contains(left.holder) || books_.slots.is_orphaned(left.holder)) return;
  std::string line = cat("worker ", books_.roster.name_of(left.holder), " is dead, but ", left.who,
                         " still has its lease, and may read its slot; stop that process");
  books_.slots.orphaned(left.holder);
  books_.roster.left_running(left.holder, std::move(left.who));
  turn.log(std::move(line));
  turn.writer_waits = true;  // a spare slot may be made
}

void Departures::evict(WorkerId id, const absl::Status& why) {
  Member* member = books_.roster.find(id);
  if (member == nullptr || member->departing) return;
  waiting_.push_back({.id = id, .why = annotate(why, cat("worker ", member->name())), .final = false});
  member->departing = true;
}

void Departures::said_goodbye(WorkerId id, std::string_view why) {
  const std::size_t before = waiting_.size();
  evict(id, unavailable("said goodbye", why.empty() ? "" : ": ", why));
  if (waiting_.size() > before) waiting_.back().intended = why.empty();
}

void Departures::refuse(Member& member, const absl::Status& why, bool final) {
  waiting_.push_back({.id = member.id, .why = why, .final = final});
  member.departing = true;
}

// If `final`, the worker's work on its device has ended. So its leases end here, even if other processes hold copies of
// its pipe.
void Departures::poison(Member& member, std::string_view why, bool final) {
  books_.roster.poisoned(member.name(), why);
  evict(member.id, absl::AbortedError(cat("poisoned: ", why)));
  if (!final) return;
  books_.roster.lost(member);
  books_.slots.end_leases(member.holder());
  books_.roster.forget(member.holder());
}

void Departures::let_leave(FleetTurn& turn) {
  while (!waiting_.empty()) {
    leave(waiting_.front(), turn);
    waiting_.pop_front();
  }
}

// If there is no memory, it is done again from the start. So the messages come last, and then the member's end.
void Departures::leave(const Departure& departure, FleetTurn& turn) {
  const Member& member = *books_.roster.find(departure.id);
  FleetTurn last;
  last.act(action::Close{.id = member.id, .why = departure.why, .final = departure.final});
  std::string line = cat("gave up ", member.name(), ": ", message_of(departure.why));
  departure.intended ? last.log(std::move(line)) : last.warn(std::move(line));
  if (member.state() != Member::State::kParked) books_.attendance.left(member.name(), departure.why);

  // Its leases stay until its pipe hangs up: it may still be reading. Over TCP there is no pipe: they end with its
  // connection.
  InFlightVersion* const sent = books_.versions.sent();
  InFlightVersion* const catch_up = member.catch_up() ? books_.versions.find(*member.catch_up()) : nullptr;
  if (catch_up != nullptr && catch_up->leased.contains(member.id)) drop_lease(member, *catch_up);
  if (sent != nullptr && !books_.slots.single_copy()) drop_lease(member, *sent);
  if (member.releasing) books_.slots.release(*member.releasing, member.holder());  // an aborted version's
  leave_leases(member, last);

  leave_group(member, departure.why);
  leave_round(member, departure.why, sent, turn);
  leave_round(member, departure.why, catch_up, turn);
  turn.act_all(std::move(last.actions));
  turn.writer_waits = true;  // its lease may have been the last on a slot
  books_.roster.remove(departure.id);
}

// Leases that a worker still has when it leaves end with its pipes. A pipe costs a descriptor, so it is watched only if
// there is such a lease, and only for so many holders; the leases of later ones last as long as this sender.
void Departures::leave_leases(const Member& member, FleetTurn& turn) {
  const Holder holder = member.holder();
  if (member.connection_kind == ConnectionKind::kTcp && member.welcomed()) books_.slots.end_leases(holder);
  books_.slots.left(holder);
  if (books_.roster.connected_beside(member)) return;  // under another name
  if (books_.slots.leases_of(holder).empty()) {
    books_.roster.forget(holder);
    turn.act(action::CloseLeases{holder});
  } else if (books_.slots.left_behind().size() > books_.rules.most_left_behind) {
    turn.act(action::CloseLeases{holder});
    turn.log(cat("the leases of ", member.name(), " last as long as this sender: ", books_.rules.most_left_behind,
                 " workers have already left and are still watched; stop what still reads, or raise ulimit -n"));
  }
}

// Ends the member's lease on a version that it drops, unless it or a rank of its group was told to flip to it.
void Departures::drop_lease(const Member& member, const InFlightVersion& version) {
  const Round& round = version.round;
  const bool told = member.group().empty() ? round.may_flip(member.id) : round.phase() == Round::Phase::kCommitting;
  const SlotId slot = version.publication().slot;
  if (round.has(member.id) && !told && !member.says_it_holds(slot) && round.under_way())
    books_.slots.release(slot, member.holder());
}

// A group is evicted as a whole. Ranks that only wait for the others keep waiting.
void Departures::leave_group(const Member& member, const absl::Status& why) {
  if (member.group().empty() || member.state() == Member::State::kParked) return;
  for (auto* const rank : books_.roster.group(member.group())) {
    if (rank == &member) continue;
    if (rank->state() == Member::State::kAdmitted) {
      books_.roster.move(*rank, Member::State::kParked);
    } else if (rank->state() != Member::State::kParked) {
      evict(rank->id, unavailable("its group lost rank ", member.hello.rank, ": ", message_of(why)));
    }
  }
}

void Departures::leave_round(const Member& member, const absl::Status& why, InFlightVersion* version, FleetTurn& turn) {
  if (version == nullptr || !version->round.has(member.id)) return;
  turn.going_on.insert(version->ticket);
  if (version->round.under_way()) version->round.lost(member.id, why);
}

}  // namespace bascule::inline v0
