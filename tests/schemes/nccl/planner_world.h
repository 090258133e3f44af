// A sender's groups whose workers and own end act by a list of numbers, with checks of the invariants
// (planner_rules.h). Workers and communicators are models (model_worker.h, model_communicator.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schemes/nccl/model_communicator.h"
#include "schemes/nccl/model_worker.h"
#include "schemes/nccl/planner_rules.h"
#include "schemes/nccl/watch.h"
#include <bascule/schemes/nccl/delivery_planner.h>

namespace bascule::inline v0::nccl {

class PlannerWorld {
 public:
  struct Step {
    std::uint32_t what = 0, which = 0;
  };
  explicit PlannerWorld(std::uint64_t seed);  // the seed chooses the rate of faults

  std::string run(const std::vector<Step>& steps);  // returns what is wrong; empty if nothing
  const std::string& trace() const { return watch_.trace; }
  std::uint64_t events() const { return events_; }

 private:
  using Posted = ModelCommunicator::Posted;
  struct Delivery {
    std::set<WorkerId> workers{};
    bool written = false, stopped = false, ran_out = false, done = false;
  };

  void tell(Event event);
  void carry_out(action::Say& say);
  void carry_out(action::Deliver& deliver);
  void carry_out(action::GiveUp& gives_up);
  void carry_out(action::Make& make);
  void carry_out(action::Warm& warm);
  void carry_out(action::Broadcast& broadcast);
  void carry_out(action::RunOut& runs_out);
  void carry_out(action::Leave& leave);
  void carry_out(action::Done& done);
  void carry_out(action::WakeAt& wake) { wakes_at_ = wake.at; }
  void carry_out(action::Log&) {}
  void tell_worker(WorkerId id, GroupMessage message);

  void step(Step step);
  void join();
  void remove(WorkerId id);
  void want(std::uint32_t which);
  void stop(std::uint32_t which);
  void pass(Clock::duration time);
  bool hear_worker(WorkerId id);
  bool own_turn(CommGroupId group);
  bool move(CommGroupId group, WorkerId rank);
  void post_own(CommGroupId group, const Posted& posted);
  void fail_own(CommGroupId group);
  void sent(CommGroupId group, const Posted& posted, const absl::Status& status);
  void fault(std::uint32_t what, std::uint32_t which);
  bool turn_all(bool removes);  // all take a turn; false: nothing happened
  void settle(std::string_view what);
  void finish();
  bool is_busy(WorkerId id) const;

  const CommGroupLimits limits_;
  const std::uint64_t faults_;  // in 64
  DeliveryPlanner planner_;
  Watch watch_;
  PlannerRules rules_;
  Clock::time_point now_{};
  std::optional<Clock::time_point> wakes_at_;
  WorkerId next_worker_ = 1;
  std::uint64_t next_delivery_ = 1;
  std::map<WorkerId, ModelWorker> workers_;
  std::map<CommGroupId, ModelCommunicator> communicators_;
  std::set<CommGroupId> hanging_;                 // their abort does not return
  std::map<CommGroupId, std::deque<Event>> own_;  // events from the sender's end
  std::map<std::uint64_t, Delivery> deliveries_;
  std::set<WorkerId> to_remove_;
  std::uint64_t events_ = 0;
};

}  // namespace bascule::inline v0::nccl
