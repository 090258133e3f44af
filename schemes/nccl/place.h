// Place: where slots lie and communicators run, as nccl sees it: a GPU (cuda_place.h). In tests it is the host.
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

// A stream for the work of one communicator. One thread at a time. It may go while work is on it.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual Stream stream() const = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceMark>> mark() = 0;  // behind all that the stream was given
};

// Digests a slot while it comes. One slot at a time, on one thread.
class Digester {
 public:
  virtual ~Digester() = default;
  // Bytes [begin, end) of `slot` come with what the stream was given so far: behind that they are digested. From byte 0
  // on, each part where the last one ended, on tiles but at the slot's end. Returns at once.
  virtual absl::Status digest(Stream stream, std::span<const std::byte> slot, std::uint64_t begin,
                              std::uint64_t end) = 0;
  // Blocks until the slot that was digested to its end is. DEADLINE_EXCEEDED: not yet.
  virtual absl::StatusOr<Digest> finish(Deadline deadline) = 0;
};

class Place {  // any thread
 public:
  virtual ~Place() = default;
  virtual int device() const = 0;  // or kHost
  virtual absl::StatusOr<SlotMemory> make_slot(std::uint64_t bytes) = 0;
  // Of one version, freed with the last copy of the pointer. RESOURCE_EXHAUSTED says what is missing.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) = 0;
  virtual absl::StatusOr<std::unique_ptr<Lane>> open_lane() = 0;
  virtual absl::StatusOr<std::unique_ptr<Digester>> open_digester() = 0;
};

// The place of a device; kHost: an error, but in tests.
using FindPlace = std::function<absl::StatusOr<std::shared_ptr<Place>>(int device)>;

}  // namespace bascule::inline v0::nccl
