// DeliveryPlanner: which communicator groups the sender has, and which delivery goes through which of them. A pure
// state machine: an event goes in, actions come out, and time is an argument. schemes/nccl/README.md has the table of
// its states.
//
// A group is one communicator: the sender is rank 0, and its workers are the other ranks. A delivery goes to its
// workers through the groups that cover them; workers that no group covers get a new one. So a worker that joins is
// served at once by a group of two, while the others continue in their group. Meanwhile a new group of all workers is
// made, which takes over once it is warm.
//
//   DeliveryPlanner   deliveries: which part goes through which group, and where it continues if a group is left
//   CommGroups        the groups: asked for, made, warmed, left; the connected workers; the group of all
//   CommGroup         the state of one group, and which ranks it waits for
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include <bascule/schemes/nccl/comm_groups.h>
#include <bascule/schemes/nccl/events.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

class DeliveryPlanner {
 public:
  using State = CommGroup::State;

  DeliveryPlanner(CommGroupLimits limits, std::uint64_t piece_bytes)
      : limits_(limits), piece_bytes_(piece_bytes), groups_(limits_, turn_) {}
  DeliveryPlanner(const DeliveryPlanner&) = delete;
  DeliveryPlanner& operator=(const DeliveryPlanner&) = delete;

  std::vector<Action> on(Event event, Clock::time_point now);

  // ---- what it knows, for tests and texts ----

  std::map<State, int> states() const { return groups_.states(); }
  bool poisoned() const { return !groups_.usable().ok(); }
  std::size_t deliveries() const { return deliveries_.size(); }

 private:
  struct Part {  // the part of a delivery that goes through one group
    CommGroupId group = 0;
    std::uint64_t from = 0;
    bool going = false, sent = false;
    std::set<WorkerId> awaited;  // workers that do not have it yet
  };
  struct Delivery {
    std::uint64_t number = 0;
    Version version = 0;
    std::vector<Part> parts;
    std::set<WorkerId> told;        // workers that were sent a deliver message
    int tries = 0;                  // how many groups of several workers broke
    std::map<WorkerId, int> alone;  // how many groups of one worker broke
    std::set<WorkerId> served;      // workers that have it
    bool stopped = false;
    std::optional<Clock::time_point> until;  // if stopped, the deadline for its remaining pieces
    absl::Status why;                        // why it failed
  };

  void note(event::Joined& joined) { groups_.join(joined.worker); }
  void note(event::Removed& removed);
  void note(event::Heard& heard);
  void note(event::Wanted& wanted);
  void note(event::Stopped& stopped);
  void note(event::Made& made) { groups_.own_end(made.group, State::kMaking, made.status); }
  void note(event::Warmed& warmed) { groups_.own_end(warmed.group, State::kWarming, warmed.status); }
  void note(event::Sent& sent);
  void note(event::Left& left) { groups_.own_left(left.group); }
  void note(event::Tick& tick);

  void work();  // does what follows, until nothing does
  bool move_on(CommGroup& group);
  void plan(Delivery& delivery, std::set<WorkerId> workers, std::uint64_t from);
  void start_parts();
  void begin(Delivery& delivery, Part& part);
  void needs_no_more(WorkerId worker, Delivery& delivery, bool failed);
  void go_on_elsewhere(const CommGroup& left);
  void go_on(Delivery& delivery, const Part& part, const CommGroup& left);
  bool breaks_too_often(Delivery& delivery, const CommGroup& left);
  void stop(Delivery& delivery, absl::Status why, bool whole);
  void finish_deliveries();
  bool waits_for(CommGroupId group) const;  // whether a delivery waits for it, or is under way there
  bool going() const;                       // whether a delivery is being broadcast, in any group
  std::optional<Clock::time_point> next_deadline() const;

  const CommGroupLimits limits_;
  const std::uint64_t piece_bytes_;
  Turn<Action> turn_;
  CommGroups groups_;
  std::map<std::uint64_t, Delivery> deliveries_;  // in the order of Wanted events
  std::optional<Clock::time_point> wakes_at_;
};

}  // namespace bascule::inline v0::nccl
