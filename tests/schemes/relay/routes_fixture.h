// Routes, with the events that a test gives it and the resulting actions.
#pragma once

#include <bascule/schemes/relay/routes.h>

#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <vector>

namespace bascule::inline v0::relay {

class RoutesFixture : public testing::Test {
 protected:
  using Kind = RelayMessage::Kind;

  explicit RoutesFixture(RelayShape shape = RelayShape::kChain) : routes(shape) {}

  void tell(const Event& event) {
    actions = routes.on(event);
    for (const Action& action : actions)
      if (const auto* done = std::get_if<action::Done>(&action)) ++ended[done->number];
  }
  // Unless a test says otherwise, each worker has a GPU for itself.
  static std::string place_of(WorkerId worker) { return "GPU of " + std::to_string(worker); }
  void join(std::initializer_list<WorkerId> workers, Kind how = Kind::kBuffers) {
    for (const WorkerId worker : workers) {
      tell(event::Joined{worker});
      tell(event::Heard{worker, {.kind = how, .place = place_of(worker)}});
    }
  }
  void want(std::uint64_t number, std::vector<WorkerId> workers, std::optional<Version> version = std::nullopt) {
    tell(event::Wanted{.number = number, .version = version.value_or(number), .workers = std::move(workers)});
  }
  void hear(WorkerId worker, Kind kind, std::uint64_t number, SourceId source = kTrainer) {
    tell(event::Heard{worker, {.kind = kind, .number = number, .source = source}});
  }
  void got(std::uint64_t number, std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) hear(worker, Kind::kGot, number);
  }
  void remove(WorkerId worker) { tell(event::Removed{worker}); }
  void stop(std::uint64_t number) { tell(event::Stopped{number}); }

  // ---- the last event's actions ----

  template <typename T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const Action& action : actions)
      if (const auto* each = std::get_if<T>(&action)) found.push_back(*each);
    return found;
  }
  // The message that a worker got. Fails unless it is exactly one of that kind.
  RelayMessage told(WorkerId worker, Kind kind) const {
    std::vector<RelayMessage> found;
    for (const auto& each : all<action::Say>())
      if (each.worker == worker && each.message.kind == kind) found.push_back(each.message);
    for (const auto& each : all<action::Deliver>())
      if (each.worker == worker && each.message.kind == kind) found.push_back(each.message);
    EXPECT_EQ(found.size(), 1u) << "told worker " << worker;
    return found.empty() ? RelayMessage{} : found.front();
  }
  std::map<WorkerId, SourceId> taken() const {
    std::map<WorkerId, SourceId> sources;
    for (const auto& each : all<action::Deliver>()) sources[each.worker] = each.message.source;
    return sources;
  }
  std::map<WorkerId, SourceId> redirected() const {
    std::map<WorkerId, SourceId> sources;
    for (const auto& each : all<action::Say>())
      if (each.message.kind == Kind::kFrom) sources[each.worker] = each.message.source;
    return sources;
  }
  bool introduced(WorkerId worker, SourceId engine) const {
    for (const auto& each : all<action::Introduce>())
      if (each.worker == worker && each.engine == engine) return true;
    return false;
  }

  Routes routes;
  std::vector<Action> actions;
  std::map<std::uint64_t, int> ended;  // how often
};

}  // namespace bascule::inline v0::relay
