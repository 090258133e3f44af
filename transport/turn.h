// Turn: the common part of the pure state machines (Fleet, nccl's and relay's planners). For each event that goes in, a
// turn collects the actions to take, in order. Time is an argument, so a test can replay events without a clock.
//
//   std::vector<Action> Machine::on(Event event, Clock::time_point now) {
//     turn_.begin(event, now, [this](auto& each) { note(each); });  // a note() per kind of event
//     work();                                                       // what follows from it
//     return turn_.take();
//   }
//
// Fleet passes its turn to each of its parts.
//
// Threads: the same rules as for the state machine that the turn belongs to.
#pragma once

#include <cstddef>
#include <iterator>
#include <type_traits>
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
  // Adds all of these or, if there is no memory, none.
  void act_all(std::vector<Action> more) {
    static_assert(std::is_nothrow_move_constructible_v<Action>);
    actions.insert(actions.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  // After this, so many calls of act() need no memory.
  void make_room(std::size_t more = 1) {
    if (actions.capacity() - actions.size() < more) actions.reserve(2 * actions.size() + more);
  }
  Clock::time_point in(absl::Duration time) const { return now + on_clock(time); }
};

}  // namespace bascule::inline v0
