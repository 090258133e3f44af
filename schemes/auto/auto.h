// auto: one sender, and for each worker the best that both ends have, in one version with one commit:
//
//   the engine reads on                     its weights
//   the trainer's GPU                       the slot, in place
//   another GPU of the host                 a receive buffer there, from the trainer or another engine (schemes/relay)
//   the host                                a mirror of the slot in host memory, in place; made when a worker wants it
//   a GPU of another host                   a broadcast (schemes/nccl), to workers that come over TCP
//
// At an endpoint with a host both ends are those of the last row's scheme. The slots are those of a scheme for GPUs.
// What a crash leaves behind is what that scheme leaves: nothing.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include <bascule/transport/device.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme auto_scheme();

// The schemes and devices that it uses; tests pass others.
struct AutoDependencies {
  Scheme slots;   // the scheme that makes the slots
  Scheme others;  // for workers on other hosts; it sends the slots of `slots`
  std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(int device)> open_queue;  // copies slots to mirrors
  std::function<bool(const Endpoint&)> reads_on_host;                                  // of a worker
};
Scheme auto_scheme_on(AutoDependencies dependencies);

}  // namespace bascule::inline v0
