#include "schemes/nccl/planner_rules.h"

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

using State = DeliveryPlanner::State;

// ---- events ----

void PlannerRules::note(const Event& event) {
  ticks_ = std::holds_alternative<event::Tick>(event);
  if (const auto* joined = std::get_if<event::Joined>(&event)) workers_.insert(joined->worker);
  if (const auto* removed = std::get_if<event::Removed>(&event)) workers_.erase(removed->worker);
  if (const auto* heard = std::get_if<event::Heard>(&event)) note_message(heard->worker, heard->message);
  if (const auto* wanted = std::get_if<event::Wanted>(&event))
    deliveries_[wanted->number].workers = {wanted->workers.begin(), wanted->workers.end()};
  if (const auto* made = std::get_if<event::Made>(&event)) seen_.at(made->group).own_made = made->status.ok();
}

void PlannerRules::note_message(WorkerId worker, const GroupMessage& message) {
  if (message.kind == GroupMessage::Kind::kMade) seen_.at(message.group).made.insert(worker);
  if (message.kind == GroupMessage::Kind::kDropped && seen_.contains(message.group))
    seen_.at(message.group).dropped.insert(worker);
  if (message.kind == GroupMessage::Kind::kGot) deliveries_.at(message.number).got.insert(worker);
  if (message.kind == GroupMessage::Kind::kFailed && message.number != 0)
    deliveries_.at(message.number).refused.insert(worker);
}

// ---- actions ----

void PlannerRules::look(const Action& action, Clock::time_point now) {
  now_ = now;
  std::visit([this](const auto& each) { check(each); }, action);
}

void PlannerRules::expect_there(WorkerId worker, std::string_view what) {
  expect(workers_.contains(worker), cat(what, " to worker ", worker, ", which is gone"));
}

void PlannerRules::check(const action::Say& say) {
  const GroupMessage& message = say.message;
  expect_there(say.worker, text_of(message));
  if (message.kind != GroupMessage::Kind::kAgain) return;
  Delivery& delivery = deliveries_.at(message.number);
  expect(delivery.told.contains(say.worker), "again before deliver");
  const CommGroupId before = std::exchange(delivery.told[say.worker], message.group);
  expect(given_up_.contains(say.worker) || seen_[before].dropped.contains(say.worker),
         cat("again to worker ", say.worker, " before it said dropped of group ", before));
  expect(!delivery.got.contains(say.worker), "again to a worker that has it all");
}

void PlannerRules::check(const action::Deliver& deliver) {
  expect_there(deliver.worker, "deliver");
  Delivery& delivery = deliveries_.at(deliver.message.number);
  expect(delivery.workers.contains(deliver.worker), "a delivery to a worker that it is not for");
  expect(delivery.told.emplace(deliver.worker, deliver.message.group).second, "deliver twice");
}

void PlannerRules::check(const action::GiveUp& gives_up) {
  expect_there(gives_up.worker, "a give-up");
  given_up_.insert(gives_up.worker);
}

void PlannerRules::check(const action::Make& make) {
  for (const WorkerId worker : make.workers) expect_there(worker, "make");
  expect(seen_.emplace(make.group, Seen{.workers = make.workers}).second, "a group's number is used again");
  expect(!planner_.poisoned(), "a communicator is made in a process that is poisoned");
}

void PlannerRules::check(const action::Broadcast& broadcast) {
  const Seen& seen = seen_.at(broadcast.group);
  expect(seen.own_made, "a broadcast in a group that this end has not made");
  for (const WorkerId worker : seen.workers)
    expect(seen.made.contains(worker), cat("a broadcast in a group that worker ", worker, " has not made"));
  expect(!planner_.states().contains(State::kWarming), "a broadcast begins while a group warms");
  expect(broadcast.from % piece_bytes_ == 0, "a broadcast begins in the middle of a piece");
  expect(!seen.left, "a broadcast in a group that is left");
}

void PlannerRules::check(const action::Leave& leave) {
  expect(!std::exchange(seen_.at(leave.group).left, true), "a group is left twice");
}

void PlannerRules::check(const action::Done& done) {
  Delivery& delivery = deliveries_.at(done.number);
  expect(!std::exchange(delivery.done, true), "done twice");
  if (!done.status.ok()) return;
  for (const WorkerId worker : delivery.workers)
    expect(!workers_.contains(worker) || given_up_.contains(worker) || delivery.got.contains(worker) ||
               delivery.refused.contains(worker),
           cat("done, but worker ", worker, " has not got it"));
}

void PlannerRules::check(const action::WakeAt& wake) {
  expect(!ticks_ || wake.at > now_, "a tick wants the next one at once");
}

void PlannerRules::look_behind_event() {
  const std::map<State, int> states = planner_.states();
  const auto warming = states.find(State::kWarming);
  expect(warming == states.end() || warming->second <= 1, "two groups warm at a time");
}

// ---- every wait ends ----

void PlannerRules::look_at_rest() {
  for (const auto& [number, delivery] : deliveries_) expect(delivery.done, cat("delivery ", number, " is never done"));
  expect(planner_.deliveries() == 0, "a delivery is left");
  int running = 0;
  for (const auto& [state, count] : planner_.states()) {
    expect(state == State::kRunning, "a group comes nowhere");
    running += count;
  }
  if (planner_.poisoned()) return;
  expect(running <= 2, "groups that are not needed stay");
  const auto is_of_all = [this](const auto& each) {
    const Seen& seen = each.second;
    return !seen.left && std::set(seen.workers.begin(), seen.workers.end()) == workers_;
  };
  expect(workers_.empty() || std::ranges::any_of(seen_, is_of_all), "there is no group of all");
}

}  // namespace bascule::inline v0::nccl
