// auto: one sender serves all workers, each by the best path that both ends have. All of them share one commit per
// version.
//
//   the engine reads on                     its weights
//   the trainer's GPU                       the slot, in place
//   another GPU of the host                 a receive buffer there, from the trainer or another engine (schemes/relay)
//   the host                                a mirror of the slot in host memory, in place; made on demand
//   a GPU of another host                   a broadcast (schemes/nccl), to workers that come over TCP
//
// At an endpoint with a host, both ends use nccl. The slots belong to a scheme for GPUs, so a crash leaves nothing on
// the machine.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include <bascule/transport/device.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme auto_scheme();

// The schemes and devices that auto uses; tests pass others.
struct AutoDependencies {
  Scheme slots;   // the scheme that makes the slots
  Scheme others;  // for workers on other hosts; it sends the slots of `slots`
  std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(int device)> open_queue;  // copies slots to mirrors
  std::function<bool(const Endpoint&)> reads_on_host;  // true if the worker with this endpoint reads on the host
};
Scheme auto_scheme_on(AutoDependencies dependencies);

}  // namespace bascule::inline v0
