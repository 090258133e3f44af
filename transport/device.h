// What sender and receiver have a GPU do, behind interfaces that know no CUDA: they are the same in a build without it,
// where open_device() refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/digest.h"
#include "kernels/segment.h"
#include "transport/deadline.h"
#include "transport/tensor.h"

namespace bascule {

// Segments as a device reads them: of tensors into a slot, or of a slot into tensors. Freeing one waits for the device.
class DevicePlan {
 public:
  virtual ~DevicePlan() = default;
};

// One device and a stream of Bascule's own there, on which one thing at a time is under way: run(), digest() and
// follow() enqueue it and return, finish() waits for it. `caller`: a stream of the user's on that device. What it was
// given by then comes first, and what it is given later waits on the device; none: nobody waits.
//
// Threads: any, one at a time. Once a call has met a sticky error, every later one says so. Destruction waits for what
// is under way.
class DeviceQueue {
 public:
  using Caller = std::optional<Stream>;
  enum class Into { kSlot, kTensors };  // kernels::pack, kernels::unpack

  virtual ~DeviceQueue() = default;
  virtual int device() const = 0;

  // Blocks while the plan is uploaded.
  virtual absl::StatusOr<std::unique_ptr<DevicePlan>> plan(Into into, std::span<const kernels::Segment> segments,
                                                           std::size_t tensors, std::uint64_t slot_bytes) = 0;
  // Device memory, not initialised, and freed with the last copy of the pointer. Blocks.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes) = 0;

  // Packs or unpacks; allocates nothing. The plan must live until finish().
  virtual absl::Status run(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                           bool want_digest, Caller caller) = 0;
  virtual absl::Status digest(std::span<const std::byte> slot, Caller caller) = 0;
  virtual absl::Status follow(Stream caller) = 0;  // does nothing, behind what `caller` was given

  // Blocks until the device is done with it; the digest, where one was wanted. DEADLINE_EXCEEDED: it is not yet.
  virtual absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) = 0;
};

// A point in the work of a stream of the user's.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual absl::Status record(Stream stream) = 0;          // behind all that it was given; returns at once
  virtual absl::Status wait(Deadline deadline) const = 0;  // until the device has passed it
};

// UNIMPLEMENTED: this build has no CUDA. UNAVAILABLE: this machine has no GPU, or none of that number.
absl::StatusOr<std::unique_ptr<DeviceQueue>> open_device(int device);
absl::StatusOr<std::unique_ptr<DeviceMark>> make_device_mark(int device);
absl::Status why_no_cuda();  // OK in a build with CUDA; else UNIMPLEMENTED, and what to do

// Whether the error took this process's use of the device with it: only a new process helps. A payload of the status.
inline constexpr char kStickyDeviceError[] = "bascule/sticky-cuda-error";
inline bool is_sticky(const absl::Status& status) { return status.GetPayload(kStickyDeviceError).has_value(); }

}  // namespace bascule
