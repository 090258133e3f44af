// RelayMemory: the memory that a relay receiver copies to, and the queue that copies. It belongs to a GPU
// (schemes/cuda_ipc/relay_memory.h) or, in tests, to the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/transport/device.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/source.h>

namespace bascule::inline v0::relay {

// A receive buffer that other processes can map.
struct ShownMemory {
  std::shared_ptr<std::byte> memory;
  std::shared_ptr<const std::byte> read_only{};  // the same memory, for this process's engine
  ProcessFd descriptor;
  std::uint64_t allocated = 0;  // bytes, in whole granules
};

struct RelayMemory {
  int device = kHost;                             // the device that has the memory and copies to it
  std::string place;                              // names the device, for import() in another process
  std::uint64_t piece_bytes = kDevicePieceBytes;  // how much is copied, and then shown, at a time; whole tiles
  std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>()> open_queue;
  std::function<absl::StatusOr<ShownMemory>(std::uint64_t bytes)> make_buffer;  // RESOURCE_EXHAUSTED if no room
  // The arguments come from another process's make_buffer().
  std::function<absl::StatusOr<ReachedMemory>(int descriptor, std::string_view place, std::uint64_t allocated)> import;
};

}  // namespace bascule::inline v0::relay
