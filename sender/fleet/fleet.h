// Fleet: the members, their leases, and the versions in flight to them. A pure state machine: an event goes in, actions
// come out, and time is an argument. No sockets, threads, clocks or schemes: the coordinator has those.
//
//            Greeted, HungUp, GivenUp …                    Say, Admit, Close, Deliver, GrantSlot …
//   workers ───────────────────────▶ ┌──────────────────┐ ───────────────────────────────────────▶ workers,
//   public thread: TakeWanted …      │ Fleet            │                                          public thread,
//   deadlines: Tick                  │  Admissions      │   Admitted, Delivered, LoanEnded …       scheme
//                                    │  Departures      │ ◀─── the answers to actions ─────────────
//                                    │  CatchUps        │
//                                    │  Writer          │   what they share: Books
//                                    │  SingleCopy      │     Roster, SlotAllocator, Versions
//                                    │  Progress        │
//                                    └──────────────────┘
//
// Each event goes to the one part that has a note() for it. Its consequences are handled in this order, until none is
// left: newcomers go on, members leave, versions continue, workers catch up, the public thread gets a slot. Nothing
// calls back into itself: an eviction that a version's progress causes waits for its turn.
//
// Any step may run out of memory. Then it has either changed nothing, or it does the same when it is done again from
// the start. So each step puts what needs memory first, and what ends it (an action, a removal) last.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <bascule/sender/fleet/admissions.h>
#include <bascule/sender/fleet/books.h>
#include <bascule/sender/fleet/catch_ups.h>
#include <bascule/sender/fleet/departures.h>
#include <bascule/sender/fleet/progress.h>
#include <bascule/sender/fleet/single_copy.h>
#include <bascule/sender/fleet/writer.h>
#include <bascule/transport/sender_status.h>

namespace bascule::inline v0 {

class Fleet {
 public:
  explicit Fleet(FleetRules rules) : books_(std::move(rules)) {}
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Throws nothing. If memory runs out while a worker's event is noted, that worker is evicted; with any other event,
  // and with the consequences, the fleet waits until there is memory.
  std::vector<Action> on(Event event, Clock::time_point now) noexcept;

  // ---- state ----

  const Roster& roster() const { return books_.roster; }
  const SlotAllocator& slot_allocator() const { return books_.slots; }
  const Versions& versions() const { return books_.versions; }
  Version published() const { return versions().published(); }
  // For error texts: the readers that a send without a slot waits for, as "a (slot 0), b (slot 1)"; single copy: "a".
  std::string readers() const;
  const std::string& last_refusal() const { return admissions_.last_refusal(); }
  const std::string& missing() const { return missing_; }        // which of the endpoint's files was removed
  std::vector<std::vector<std::string>> fused_requests() const;  // of the connected workers, in the order of arrival
  bool writes_in_pieces() const { return books_.writes_in_pieces(); }
  // `untouched` is the slot that was taken ahead, if the public thread has not begun to write it.
  SenderStatus status(std::optional<SlotId> untouched) const;

 private:
  // Messages from welcomed workers (messages.cpp)
  void note(event::Heard& heard, FleetTurn& turn);
  void hear(Member& member, const Ready& ready, FleetTurn& turn);
  void hear(Member& member, const Prepared& prepared, FleetTurn& turn);
  void hear(Member& member, const Failed& failed, FleetTurn& turn);
  void hear(Member& member, const Loading& loading, FleetTurn& turn);
  void hear(Member& member, const Ack& ack, FleetTurn& turn);
  void hear(Member& member, const Released& released, FleetTurn& turn);
  void crossed(const Member& member, SlotId slot);  // the member's `released` crossed a prepare
  // Returns the version that a message is about, which may then continue; null if the message is not about the version
  // that the worker is being sent.
  InFlightVersion* version_of(const Member& member, Version version, FleetTurn& turn);

  // Deadlines
  void note(event::Tick& tick, FleetTurn& turn);
  void note(event::AllRead& all_read, FleetTurn& turn);
  void judge(FleetTurn& turn);

  void note(event::EndpointMissing& missing, FleetTurn& turn);
  void note(event::WorkersExpected& expected, FleetTurn& turn);
  template <typename Which>
  void take(Which& event);
  template <typename Which>
  void hand_out(Which& event, FleetTurn& turn);
  void lose(WorkerId id, const absl::Status& why);
  void report(const absl::Status& done) noexcept;
  void work(FleetTurn& turn);  // handles consequences until none is left

  Books books_;
  CatchUps catch_ups_{books_};
  Departures departures_{books_};
  SingleCopy single_copy_{books_};
  Admissions admissions_{books_, departures_, catch_ups_};
  Writer writer_{books_, single_copy_, catch_ups_};
  Progress progress_{books_, catch_ups_};
  FleetTurn turn_;
  std::string missing_;
  Clock::time_point judged_at_;  // deadlines up to this time are judged at AllRead
};

}  // namespace bascule::inline v0
