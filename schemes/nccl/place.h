// Place: nccl's interface to the device with the slots and communicators: a GPU (cuda_place.h) or, in tests, the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>
#include <bascule/transport/slot_memory.h>

namespace bascule::inline v0::nccl {

// A stream for the work of one communicator. One thread at a time. It may be destroyed while work is on it.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual Stream stream() const = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceMark>> mark() = 0;  // passed after all work enqueued so far
};

// Digests a slot while it arrives. One slot at a time, on one thread.
class Digester {
 public:
  virtual ~Digester() = default;
  // Digests bytes [begin, end) of `slot` after the work enqueued on the stream so far, which brings them. Parts are
  // consecutive, starting with byte 0, and end on a tile or at the slot's end. Returns at once.
  virtual absl::Status digest(Stream stream, std::span<const std::byte> slot, std::uint64_t begin,
                              std::uint64_t end) = 0;
  // Blocks until the whole slot is digested, or returns DEADLINE_EXCEEDED. All its parts must have been given.
  virtual absl::StatusOr<Digest> finish(Deadline deadline) = 0;
};

class Place {  // any thread
 public:
  virtual ~Place() = default;
  virtual int device() const = 0;  // or kHost
  virtual absl::StatusOr<SlotMemory> make_slot(std::uint64_t bytes) = 0;
  // Allocates memory for one version, freed with the last copy of the pointer. RESOURCE_EXHAUSTED says what is missing.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) = 0;
  // `sends`: at the sender, whose work must come before the pack of the same version.
  virtual absl::StatusOr<std::unique_ptr<Lane>> open_lane(bool sends) = 0;
  virtual absl::StatusOr<std::unique_ptr<Digester>> open_digester() = 0;
};

// Returns the place of a device; for kHost an error, except in tests.
using FindPlace = std::function<absl::StatusOr<std::shared_ptr<Place>>(int device)>;

}  // namespace bascule::inline v0::nccl
