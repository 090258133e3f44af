// The events and actions of DeliveryPlanner. The sender's end makes the events, and carries out the actions in order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include <bascule/schemes/nccl/messages.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

namespace event {

struct Joined {  // a worker to whom slots were offered
  WorkerId worker = 0;
};
struct Removed {
  WorkerId worker = 0;
};
struct Heard {
  WorkerId worker = 0;
  GroupMessage message;
};
struct Wanted {  // a delivery
  std::uint64_t number = 0;
  Version version = 0;
  std::vector<WorkerId> workers;
};
struct Stopped {  // it is wanted no more. `whole`: nothing more is to be written, so it is stuck
  std::uint64_t number = 0;
  bool whole = false;
};

// ---- of the sender's own end ----

struct Made {  // its rank of a group, or why not; FAILED_PRECONDITION: this process cannot make one any more
  CommGroupId group = 0;
  absl::Status status;
};
struct Warmed {
  CommGroupId group = 0;
  absl::Status status;
};
struct Sent {  // its part of a broadcast
  CommGroupId group = 0;
  std::uint64_t number = 0;
  absl::Status status;
};
struct Left {  // its rank of a group is no more
  CommGroupId group = 0;
};
struct Tick {};

}  // namespace event

using Event = std::variant<event::Joined, event::Removed, event::Heard, event::Wanted, event::Stopped, event::Made,
                           event::Warmed, event::Sent, event::Left, event::Tick>;

namespace action {

struct Say {
  WorkerId worker = 0;
  GroupMessage message;
};
struct Deliver {  // by a deliver message of that version
  WorkerId worker = 0;
  Version version = 0;
  GroupMessage message;
};
struct GiveUp {
  WorkerId worker = 0;
  absl::Status why;
};
struct Make {  // draws an id, joins as rank 0, and says `make` to these, as ranks 1 and up; answered by Made
  CommGroupId group = 0;
  std::vector<WorkerId> workers;
};
struct Warm {  // answered by Warmed
  CommGroupId group = 0;
};
struct Broadcast {  // answered by Sent
  CommGroupId group = 0;
  std::uint64_t number = 0, from = 0;
};
struct RunOut {  // what of this delivery is not written goes out as it lies
  std::uint64_t number = 0;
};
struct Leave {  // answered by Left
  CommGroupId group = 0;
};
struct Done {
  std::uint64_t number = 0;
  absl::Status status;
};
struct WakeAt {  // answered by Tick
  Clock::time_point at;
};
struct Log {
  std::string line;
};

}  // namespace action

using Action = std::variant<action::Say, action::Deliver, action::GiveUp, action::Make, action::Warm, action::Broadcast,
                            action::RunOut, action::Leave, action::Done, action::WakeAt, action::Log>;

// One event's turn: when it came, and what is to be done about it, in that order.
struct Turn {
  Clock::time_point now;
  std::vector<Action> actions{};

  template <typename Which>
  void act(Which action) {
    actions.emplace_back(std::in_place_type<Which>, std::move(action));
  }
  void say(WorkerId worker, GroupMessage message) { act(action::Say{.worker = worker, .message = std::move(message)}); }
  Clock::time_point in(absl::Duration time) const { return now + absl::ToChronoNanoseconds(time); }
};

}  // namespace bascule::inline v0::nccl
