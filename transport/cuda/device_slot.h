// Slots in device memory, for cuda-ipc and nccl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/device_memory.h>
#include <bascule/transport/slot_memory.h>

namespace bascule::inline v0::cuda {

// Makes a slot of `bytes` bytes, mapped for `device` to read and write, with a descriptor that other processes can map.
// `allocated` receives the slot's size in whole granules, which those processes need in order to import it. Returns the
// errors of Allocation::make().
absl::StatusOr<SlotMemory> make_device_slot(const Device& device, std::uint64_t bytes, ForNetwork network,
                                            std::uint64_t* allocated = nullptr);

// Sets the slot's memory to zero. Blocks.
absl::Status clear(const SlotMemory& slot);

// Allocates memory of the same kind, without a descriptor. It is freed with the last copy of the pointer.
absl::StatusOr<std::shared_ptr<std::byte>> allocate_mapped(int device, std::uint64_t bytes, ForNetwork network);

}  // namespace bascule::inline v0::cuda
