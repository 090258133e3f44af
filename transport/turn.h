// Turn: the common part of the pure state machines (Fleet, nccl's and relay's planners). For each event that goes in, a
// turn collects the actions to take, in order. Time is an argument, so a test can replay events without a clock.
//
//   std::vector<Action> Machine::on(Event event, Clock::time_point now) {
//     turn_.begin(event, now, [this](auto& each) { note(each); });  // a note() per kind of event
//     work();                                                       // what follows from it
//     return turn_.take();
//   }
//
// Fleet has no member turn_; it passes a turn to each of its parts instead.
//
// Threads: the same rules as for the state machine that the turn belongs to.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

template <typename Action>  // a std::variant
struct Turn {
  Clock::time_point now{};  // when the event came
  std::vector<Action> actions{};

  template <typename Event, typename Note>
  void begin(Event& event, Clock::time_point at, const Note& note) {
    now = at;
    std::visit(note, event);
  }
  std::vector<Action> take() { return std::exchange(actions, {}); }

  template <typename Which>
  void act(Which action) {
    actions.emplace_back(std::in_place_type<Which>, std::move(action));
  }
  Clock::time_point in(absl::Duration time) const { return now + on_clock(time); }
};

}  // namespace bascule::inline v0
