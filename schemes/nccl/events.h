// The events and actions of DeliveryPlanner. The sender's end creates the events and carries out the actions in order.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include <bascule/schemes/deliveries/events.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/transport/deadline.h>

namespace bascule::inline v0::nccl {

namespace event {

using namespace schemes::event;
using Heard = schemes::event::Heard<GroupMessage>;

// ---- of the sender's own end ----

struct Made {  // this end has a rank in the group, or an error; FAILED_PRECONDITION if it can no longer make groups
  CommGroupId group = 0;
  absl::Status status;
};
struct Warmed {
  CommGroupId group = 0;
  absl::Status status;
};
struct Sent {  // this end's part of a broadcast is over
  CommGroupId group = 0;
  std::uint64_t number = 0;
  absl::Status status;
};
struct Left {  // this end's rank in a group has ended
  CommGroupId group = 0;
};
struct Tick {};

}  // namespace event

using Event = std::variant<event::Joined, event::Removed, event::Heard, event::Wanted, event::Stopped, event::Made,
                           event::Warmed, event::Sent, event::Left, event::Tick>;

namespace action {

using namespace schemes::action;
using Say = schemes::action::Say<GroupMessage>;
using Deliver = schemes::action::Deliver<GroupMessage>;

struct Make {  // creates an id, joins as rank 0, and sends `make` to these, as ranks 1 and up; answered by Made
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
struct RunOut {  // sends the rest of this delivery as it is, even bytes that are not yet written
  std::uint64_t number = 0;
};
struct Leave {  // answered by Left
  CommGroupId group = 0;
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

}  // namespace bascule::inline v0::nccl
