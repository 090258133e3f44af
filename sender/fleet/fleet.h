// Fleet: the members, what they hold, and the versions on their way to them. A pure state machine: an event goes in,
// actions come out, and time is an argument. No sockets, threads, clocks or schemes: the coordinator has those.
//
//            Greeted, Heard, HungUp …                      Say, Admit, Close, Deliver, GrantSlot …
//   workers ───────────────────────▶ ┌──────────────────┐ ───────────────────────────────────────▶ workers,
//   public thread: TakeWanted …      │ Fleet            │                                          public thread,
//   deadlines: Tick                  │  Roster          │   Admitted, Delivered, LoanEnded …       scheme
//                                    │  SlotAllocator   │ ◀─── the answers to actions ─────────────
//                                    │  Versions        │
//                                    └──────────────────┘
//
// An event is noted by its own handler; what follows from it is worked off a list, in this order, until nothing is
// left: members leave, versions go on, workers that are behind catch up, the public thread gets a slot. Nothing calls
// back into itself: an eviction that a version's progress brings about waits for its turn.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <bascule/sender/fleet/actions.h>
#include <bascule/sender/fleet/events.h>
#include <bascule/sender/fleet/roster.h>
#include <bascule/sender/fleet/slot_allocator.h>
#include <bascule/sender/fleet/versions.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/sender_status.h>

namespace bascule::inline v0 {

struct FleetRules {
  Endpoint endpoint;                // its options
  std::string compatibility_key{};  // empty: none
  Epoch epoch = 0;
  Version published = 0;                                       // the last version of the runs before
  Version used = 0;                                            // the highest number known to be used
  bool delivers = false, publishes = false, persists = false;  // what the scheme has to do
  bool delivers_while_written = false;                         // its deliveries begin with the first bytes
};

// Of a single copy: its loan was out for too long.
absl::Status loan_lapsed(const Endpoint& endpoint, Version version);

class Fleet {
 public:
  explicit Fleet(FleetRules rules);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  std::vector<Action> on(Event event, Clock::time_point now);

  // ---- what it knows ----

  const Roster& roster() const { return roster_; }
  const SlotAllocator& slot_allocator() const { return slots_; }
  const Versions& versions() const { return versions_; }
  Version published() const { return versions_.published(); }
  // For error texts, whom a send waits for that gets no slot: "a (slot 0), b (slot 1)", or of a single copy "a".
  std::string readers() const;
  const std::string& last_refusal() const { return last_refusal_; }  // for error texts; empty: none
  const std::string& missing() const { return missing_; }            // what of the endpoint was removed
  std::vector<std::vector<std::string>> fused_wishes() const;        // of the workers that are there, as they came
  // Whether bytes leave while a version is written: it is better written in parts.
  bool writes_in_parts() const { return rules_.delivers_while_written || roster_.copied_behind(); }
  // `untouched`: the slot that was taken ahead, where the public thread has not begun to write it.
  SenderStatus status(std::optional<SlotId> untouched) const;

 private:
  // Members (members.cpp)
  void note(event::Greeted& greeted);
  void note(event::Heard& heard);
  void note(event::HungUp& hung_up);
  void note(event::GivenUp& given_up);
  void note(event::HolderGone& gone);
  void note(event::LayoutRegistered& registered);
  void note(event::SlotsOpened& opened);
  void note(event::Admitted& admitted);
  void note(event::Offered& offered);
  void note(event::ConnectionRefused& refused);
  void note(event::EndpointMissing& missing);
  absl::Status claim(Version version, Version most);  // that a worker has
  absl::Status check_compatibility_key(const Hello& hello) const;
  void consider(Member& member);  // refuse it, welcome it, or leave it parked
  void welcome(Member& member);
  void turn_away(WorkerId id, const absl::Status& why);  // a connection that is no member
  void refuse(Member& member, const absl::Status& why);  // a member that is not welcomed
  void evict(WorkerId id, const absl::Status& why);
  void poison(Member& member, std::string_view why, bool final);

  // What members leave behind (leaving.cpp)
  struct Leaving {
    WorkerId id = 0;
    absl::Status why;
    bool final = false;
  };
  void leave(const Leaving& leaving);
  void leave_rounds(const Member& member, const absl::Status& why);
  void leave_group(const Member& member, const absl::Status& why);
  void drop_lease(const Member& member, const InFlightVersion& version);

  // Messages (messages.cpp)
  void hear(Member& member, const Ready& ready);
  void hear(Member& member, const Prepared& prepared);
  void hear(Member& member, const Failed& failed);
  void hear(Member& member, const Loading& loading);
  void hear(Member& member, const Ack& ack);
  void hear(Member& member, const Released& released);
  void crossed(const Member& member, SlotId slot);  // its word of release, and a prepare
  void hear_waiting(Member& member, const Message& message);
  InFlightVersion* version_of(const Member& member);  // the one that it is told of now, at most one
  InFlightVersion* version_of(const Member& member, Version version);

  // Slots for the public thread (slots.cpp)
  void note(event::TakeWanted& wanted);
  void note(event::TakeGivenUp& given_up);
  void note(event::SlotReplaced& replaced);
  void note(event::GivenBack& back);
  void note(event::Announced& announced);
  void serve_writer();
  std::optional<Grant> take_slot();
  std::vector<Holder> unwilling();
  void drop_gone();
  void give_up_idle_catch_ups();
  bool is_newer_for(Member& member, Version version);
  bool catches_up(Member& member);  // it, or a rank of its group
  void tell_prepare(const std::vector<Member*>& members, const Publication& publication);

  // A single copy (single_copy.cpp)
  void note(event::LoanEnded& ended);
  void let_write(InFlightVersion& sent);
  void ask_those_that_came_back(InFlightVersion& sent);
  std::vector<Holder> in_the_way(const InFlightVersion& sent);
  void judge_single_copy();

  // Versions (rounds.cpp, catch_up.cpp)
  void note(event::SlotSealed& sealed);
  void note(event::Abandoned& abandoned);
  void note(event::Delivered& delivered);
  void note(event::Published& published);
  void note(event::Persisted& persisted);
  void advance(InFlightVersion& version);
  void deliver(InFlightVersion& version);
  void decide(InFlightVersion& version);
  void decided(InFlightVersion& version, const absl::Status& status);
  void settle(const InFlightVersion& sent);
  SendReport report_of(const InFlightVersion& sent) const;
  void finish_abort(const InFlightVersion& sent);
  void expect_release(const InFlightVersion& sent, const std::vector<WorkerId>& workers);
  void catch_up(Member& member);
  void end_catch_up(const InFlightVersion& version);
  void catch_up_all();

  // Deadlines (deadlines.cpp)
  void note(event::Tick& tick);
  void note(event::AllRead& all_read);
  void judge();
  void wait_until(InFlightVersion& version, Clock::time_point until);
  void leave_time(InFlightVersion& version);

  void work();  // until nothing follows any more
  void let_leave();
  void act(Action action) { actions_.push_back(std::move(action)); }
  void say(std::vector<WorkerId> to, Message message);
  void log(std::string line) { act(action::Log{std::move(line)}); }

  WorkerStatus status_of(const Member& member) const;
  SlotStatus status_of(SlotId slot, std::optional<SlotId> untouched) const;

  const FleetRules rules_;
  const Endpoint& endpoint_ = rules_.endpoint;
  Roster roster_;
  SlotAllocator slots_;
  Versions versions_;
  std::optional<Layout> layout_;
  EncodedLayout encoded_layout_;                    // the final one's, for every welcome
  std::optional<std::vector<std::string>> wanted_;  // the public thread waits for a slot, for these
  std::map<Ticket, SlotId> delivered_from_;         // deliveries under way, also of versions that were given up
  LeaseNumber last_lease_ = 0;
  bool some_left_out_ = false;  // the last version was for some only
  std::string last_refusal_, missing_;
  Clock::time_point refusal_due_;      // when a refused connection is logged again
  std::uint64_t refusals_unsaid_ = 0;  // that were not logged since the last that was
  std::vector<std::string> warnings_;  // for the next report
  Clock::time_point judged_at_;        // whose deadlines are judged once AllRead has come

  // What follows from what was noted.
  std::deque<Leaving> leaving_;
  std::set<Ticket> going_on_;
  std::set<WorkerId> behind_;
  bool writer_waits_ = false;  // a slot may have come free, or a reader have yielded

  Clock::time_point now_;  // of the event that is worked on
  std::vector<Action> actions_;
};

}  // namespace bascule::inline v0
