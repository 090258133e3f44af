// The events and actions that the planners of deliveries share: nccl's DeliveryPlanner and the relay's Routes. Each
// takes events and returns actions (transport/turn.h); the sender's end creates the events and carries out the actions
// in order.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/scheme.h>
#include <bascule/transport/turn.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0::schemes {

namespace event {

struct Joined {  // slots were offered to this worker
  WorkerId worker = 0;
};
struct Removed {
  WorkerId worker = 0;
};
template <typename Message>
struct Heard {
  WorkerId worker = 0;
  Message message;
};
struct Wanted {  // a delivery is wanted
  std::uint64_t number = 0;
  Version version = 0;
  std::vector<WorkerId> workers;
};
struct Stopped {  // the delivery is no longer wanted. `whole`: all of the slot is written, so the delivery is stuck
  std::uint64_t number = 0;
  bool whole = false;
};

}  // namespace event

namespace action {

template <typename Message>
struct Say {
  WorkerId worker = 0;
  Message message;
};
template <typename Message>
struct Deliver {  // sent inside the deliver message of that version
  WorkerId worker = 0;
  Version version = 0;
  Message message;
};
struct GiveUp {
  WorkerId worker = 0;
  absl::Status why;
};
struct Done {  // the delivery no longer reads the slot
  std::uint64_t number = 0;
  absl::Status status{};
};

}  // namespace action

}  // namespace bascule::inline v0::schemes
