// A sender's groups to which a test gives each event, and whose actions it reads.
#pragma once

#include <bascule/schemes/nccl/delivery_planner.h>

#include <gmock/gmock.h>

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "support/status.h"

namespace bascule::inline v0::nccl {

class PlannerReplay : public testing::Test {
 protected:
  void tell(Event event) {
    for (Action& action : planner.on(std::move(event), now)) {
      if (const auto* wake = std::get_if<action::WakeAt>(&action)) wakes_at = wake->at;
      actions.push_back(std::move(action));
    }
  }
  void pass(absl::Duration time) {
    now += on_clock(time);
    if (!wakes_at || *wakes_at > now) return;
    wakes_at.reset();
    tell(event::Tick{});
  }
  void hear(WorkerId worker, GroupMessage::Kind kind, CommGroupId group, std::uint64_t number = 0,
            std::uint64_t from = 0) {
    tell(event::Heard{worker, {.kind = kind, .group = group, .number = number, .from = from, .why = "broken"}});
  }
  // All actions of one kind since forget().
  template <typename T>
  std::vector<T> all() {
    std::vector<T> found;
    for (const Action& action : actions)
      if (const auto* is = std::get_if<T>(&action)) found.push_back(*is);
    return found;
  }
  std::vector<WorkerId> told(GroupMessage::Kind kind) {
    std::vector<WorkerId> workers;
    for (const action::Say& say : all<action::Say>())
      if (say.message.kind == kind) workers.push_back(say.worker);
    for (const action::Deliver& deliver : all<action::Deliver>())
      if (deliver.message.kind == kind) workers.push_back(deliver.worker);
    return workers;
  }
  void forget() { actions.clear(); }  // the actions so far
  int count(DeliveryPlanner::State state) {
    const auto states = planner.states();
    const auto found = states.find(state);
    return found == states.end() ? 0 : found->second;
  }

  void join(std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) tell(event::Joined{worker});
  }
  // Makes a group, from ask to made.
  void make(CommGroupId group, std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) hear(worker, GroupMessage::Kind::kReady, group);
    for (const WorkerId worker : workers) hear(worker, GroupMessage::Kind::kMade, group);
    tell(event::Made{group, absl::OkStatus()});
  }
  void warm(CommGroupId group, std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) hear(worker, GroupMessage::Kind::kWarmed, group);
    tell(event::Warmed{group, absl::OkStatus()});
  }
  // Makes a running group of all of them.
  CommGroupId run(std::initializer_list<WorkerId> workers) {
    join(workers);
    pass(absl::Milliseconds(100));
    make(++last, workers);
    warm(last, workers);
    EXPECT_EQ(count(DeliveryPlanner::State::kRunning), 1);
    forget();
    return last;
  }
  void want(std::uint64_t number, std::vector<WorkerId> workers) {
    tell(event::Wanted{.number = number, .version = number + 100, .workers = std::move(workers)});
  }
  void got(std::uint64_t number, CommGroupId group, std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) hear(worker, GroupMessage::Kind::kGot, group, number);
    tell(event::Sent{group, number, absl::OkStatus()});
  }
  absl::Status done(std::uint64_t number) {
    for (const action::Done& each : all<action::Done>())
      if (each.number == number) return each.status;
    return absl::UnknownError("it is not done");
  }

  static constexpr std::uint64_t kPiece = 10;
  DeliveryPlanner planner{CommGroupLimits{}, kPiece};
  Clock::time_point now{};
  std::optional<Clock::time_point> wakes_at;
  std::vector<Action> actions;
  CommGroupId last = 0;
};

}  // namespace bascule::inline v0::nccl
