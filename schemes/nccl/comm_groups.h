// CommGroups: the communicator groups of one sender, from `ask` until they are gone, and the connected workers. It
// knows no deliveries: DeliveryPlanner decides which delivery goes through a group, and where it continues when the
// group is left.
//
// A group of all workers is made a while after workers join or leave. Other groups are made when the planner asks. At
// most one group warms at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/schemes/nccl/comm_group.h>
#include <bascule/schemes/nccl/events.h>

namespace bascule::inline v0::nccl {

class CommGroups {
 public:
  using State = CommGroup::State;
  struct Load {
    bool waits = false;  // a delivery waits for this group
    bool going = false;  // a delivery is being broadcast, in any group
  };

  CommGroups(const CommGroupLimits& limits, Turn<Action>& turn) : limits_(limits), turn_(turn) {}  // both outlive it

  // ---- events ----

  void join(WorkerId worker);
  void remove(WorkerId worker);
  void heard(WorkerId worker, GroupMessage message);                         // a message about a group
  void own_end(CommGroupId group, State state, const absl::Status& status);  // this end finished that state's work
  void own_left(CommGroupId group);
  void end_waits();  // ends states that lasted too long

  // ---- the groups' life ----

  CommGroup& ask(std::vector<WorkerId> workers);  // asks workers to join a new group
  bool move_on(CommGroup& group, Load load);      // returns true if its state changed
  void leave(CommGroup& group, std::string why);
  CommGroup take_out(CommGroupId group);         // removes a group that was left and is complete
  void want_one_of_all_in(absl::Duration time);  // a group of all workers is due after `time`, or earlier
  void make_one_of_all();                        // asks for that group if it is due
  void drop_spares();                            // call it while no delivery is under way
  void use(CommGroup& group) { group.use(++uses_); }

  // ---- what it knows ----

  CommGroup* find(CommGroupId group);
  // Returns the largest group whose workers are all in `workers`, a running one if possible; with `runs`, none else.
  CommGroup* cover(const std::set<WorkerId>& workers, bool runs);
  bool has(WorkerId worker) const { return workers_.contains(worker); }
  bool any(State state) const;
  std::vector<CommGroupId> ids() const;
  std::size_t size() const { return groups_.size(); }
  std::map<State, int> states() const;
  const absl::Status& usable() const { return usable_; }  // FAILED_PRECONDITION if this process is poisoned
  // OK if a group can be made. If none can, running groups continue.
  const absl::Status& can_make() const { return usable_.ok() ? makes_ : usable_; }
  void served(WorkerId worker) { strikes_.erase(worker); }  // the worker got a version
  std::optional<Clock::time_point> next_deadline() const;

 private:
  void broken(WorkerId worker, CommGroup& group, const std::string& why);
  void give_up_late(CommGroup& group, std::string_view what, absl::Duration limit);
  void end(absl::Status& what, absl::Status why);

  const CommGroupLimits& limits_;
  Turn<Action>& turn_;
  CommGroupId next_ = 1;
  std::uint64_t uses_ = 0;
  std::map<CommGroupId, CommGroup> groups_;
  std::set<WorkerId> workers_;  // connected
  // How many consecutive groups a worker broke, before they ran or as their only worker; cleared when it gets a
  // version.
  std::map<WorkerId, int> strikes_;
  std::optional<Clock::time_point> gathers_until_;
  absl::Status usable_, makes_;
};

}  // namespace bascule::inline v0::nccl
