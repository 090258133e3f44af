// The invariants of a sender's groups, checked on the events that go in and the actions that come out.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "schemes/nccl/watch.h"
#include <bascule/schemes/nccl/delivery_planner.h>

namespace bascule::inline v0::nccl {

class PlannerRules {
 public:
  PlannerRules(const DeliveryPlanner& planner, std::uint64_t piece_bytes, Watch& watch)
      : planner_(planner), piece_bytes_(piece_bytes), watch_(watch) {}

  void note(const Event& event);  // before the planner gets it
  void look(const Action& action, Clock::time_point now);
  void look_behind_event();  // all its actions were carried out
  void look_at_rest();       // every wait has ended, and no event is left

 private:
  struct Seen {  // a group
    std::vector<WorkerId> workers{};
    std::set<WorkerId> made{}, dropped{};  // the workers that said so
    bool own_made = false, left = false;
  };
  struct Delivery {
    std::set<WorkerId> workers{}, got{}, refused{};
    std::map<WorkerId, CommGroupId> told{};  // the last group in which it was told to take part
    bool done = false;
  };

  void note_message(WorkerId worker, const GroupMessage& message);
  void check(const action::Say& say);
  void check(const action::Deliver& deliver);
  void check(const action::GiveUp& gives_up);
  void check(const action::Make& make);
  void check(const action::Broadcast& broadcast);
  void check(const action::Leave& leave);
  void check(const action::Done& done);
  void check(const action::WakeAt& wake);
  void check(const action::Warm&) {}
  void check(const action::RunOut&) {}
  void check(const action::Log&) {}
  void expect(bool holds, std::string_view what) { watch_.expect(holds, what); }
  void expect_there(WorkerId worker, std::string_view what);

  const DeliveryPlanner& planner_;
  const std::uint64_t piece_bytes_;
  Watch& watch_;
  Clock::time_point now_{};
  bool ticks_ = false;  // the event is a tick
  std::set<WorkerId> workers_, given_up_;
  std::map<CommGroupId, Seen> seen_;
  std::map<std::uint64_t, Delivery> deliveries_;
};

}  // namespace bascule::inline v0::nccl
