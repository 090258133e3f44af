// What sender and receiver have a GPU do, behind interfaces that know no CUDA: they are the same in a build without it,
// where open_device() refuses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/segment.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// Segments as a device reads them: of tensors into a slot, or of a slot into tensors. Freeing one waits for the device.
class DevicePlan {
 public:
  virtual ~DevicePlan() = default;
};

// Memory elsewhere as one device copies to it and from it: of the host, registered with the device, or, where that
// cannot be (mappings of files), through pinned buffers; or of a peer GPU. Goes before the memory does; waits for the
// copies under way.
class HostWindow {
 public:
  virtual ~HostWindow() = default;
  virtual const std::string& how() const = 0;  // for reports: "registered with device 0"
  // That one copy should move: kHostPieceBytes, or from a peer GPU kDevicePieceBytes.
  virtual std::uint64_t piece_bytes() const = 0;
};

// What is packed at a time, so that others can run behind it, and what one copy from a peer GPU moves; and what one
// copy to or from a host does, which takes longer. Whole tiles of the digest.
inline constexpr std::uint64_t kDevicePieceBytes = std::uint64_t{32} << 20;
inline constexpr std::uint64_t kHostPieceBytes = std::uint64_t{16} << 20;

// One device and a stream of Bascule's own there, on which one thing at a time is under way: run(), digest(),
// run_behind() and copy_in() enqueue it and return, finish() waits for it. `caller`: a stream of the user's on that
// device. What was queued on it by then comes first, and what is queued later waits on the device; none: nothing waits.
//
// Threads: any, one at a time. Once a call has met a sticky error, every later one says so; a device that the process
// reset is one. Destruction waits for what is under way. A call that fails leaves nothing behind that a later one
// counts on. A `caller` that check_stream() refuses is refused before anything is enqueued.
class DeviceQueue {
 public:
  using Caller = std::optional<Stream>;
  enum class Into { kSlot, kTensors };  // kernels::pack, kernels::unpack

  virtual ~DeviceQueue() = default;
  virtual int device() const = 0;

  // What every call below would refuse a `caller` for, and a device that is lost: as check_stream(). Does nothing
  // there.
  virtual absl::Status check(Stream caller) = 0;

  // Blocks while the plan is uploaded.
  virtual absl::StatusOr<std::unique_ptr<DevicePlan>> plan(Into into, std::span<const kernels::Segment> segments,
                                                           std::size_t tensors, std::uint64_t slot_bytes) = 0;
  // Device memory, not initialised, and freed with the last copy of the pointer. Blocks. RESOURCE_EXHAUSTED says how
  // much `what` ("the second set of the tensors") needs and how much the device has.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) = 0;

  // Packs or unpacks; allocates nothing. The plan must live until finish().
  virtual absl::Status run(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                           bool want_digest, Caller caller) = 0;
  virtual absl::Status digest(std::span<const std::byte> slot, Caller caller) = 0;
  // Enqueues the digest of bytes [begin, end) of a slot that come with what `producer`, a stream of Bascule's own on
  // this device, was given so far (null: they are there). `producer` waits for nothing. Pieces as of copy_in(): from
  // byte 0 on, each where the last one ended; that which ends with the slot has its digest made.
  virtual absl::Status digest_behind(Stream producer, std::span<const std::byte> slot, std::uint64_t begin,
                                     std::uint64_t end) = 0;
  virtual absl::Status run_behind(Stream caller) = 0;  // does nothing, behind what `caller` was given

  // ---- slots in host memory ----

  // `place`: kHost, or the device whose memory it is, at an address that this device reaches. Blocks: registering takes
  // about half a second a GiB.
  virtual absl::StatusOr<std::shared_ptr<HostWindow>> open_window(std::span<const std::byte> bytes, int place,
                                                                  Access access) = 0;
  // As run() with a plan into a slot, in pieces, so that copy_out() has something to do before all is packed.
  virtual absl::Status run_in_pieces(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                                     bool want_digest, Caller caller) = 0;
  // Behind each piece of that run_in_pieces() that is packed, `bytes_done` grows. Blocks until it is all.
  virtual absl::Status watch_pieces(std::atomic<std::uint64_t>& bytes_done, Deadline deadline) = 0;
  // Copies the slot of that run_in_pieces() to the window, each piece as soon as it is packed; `bytes_done` grows
  // behind each. Blocks, mostly asleep. DEADLINE_EXCEEDED: not all of it is there yet.
  virtual absl::Status copy_out(const std::byte* slot, HostWindow& to, std::atomic<std::uint64_t>& bytes_done,
                                Deadline deadline) = 0;
  // Enqueues a copy of bytes [begin, end) of the window to the same place of `slot`; many may be under way. Through
  // buffers it blocks until the bytes are read. With `want_digest` copies begin on tiles, at 0 and then where the last
  // one ended; the one that ends with the slot has its digest made, most of it while later pieces were still coming.
  virtual absl::Status copy_in(HostWindow& from, std::uint64_t begin, std::uint64_t end, std::span<std::byte> slot,
                               bool want_digest) = 0;
  // Copies all of a slot that is there to the window. Blocks, mostly asleep. DEADLINE_EXCEEDED: not all of it is there.
  virtual absl::Status copy_to_host(const std::byte* slot, HostWindow& to, Deadline deadline) = 0;
  // Of the slot whose copy_in() from byte 0 was the last: the prefix that has come. Does not block.
  virtual absl::StatusOr<std::uint64_t> arrived() = 0;

  // Blocks until the device is done with it; the digest, where one was wanted. DEADLINE_EXCEEDED: it is not yet.
  virtual absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) = 0;
  // Blocks until the device is done with all that it was given, also by calls that failed; until then it may read and
  // write what they named. OK of a device that is lost, too. DEADLINE_EXCEEDED: it is not yet.
  virtual absl::Status settle(Deadline deadline) = 0;
};

// A point in the work of a stream of the user's.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual int device() const = 0;
  // Behind all that it was given; returns at once. Errors as of check_stream().
  virtual absl::Status record(Stream stream) = 0;
  virtual absl::Status wait(Deadline deadline) const = 0;  // until the device has passed it
};

// Whether work on `device` can be ordered against `stream`, a user's. INVALID_ARGUMENT: it is one of another device.
// FAILED_PRECONDITION: it is being captured into a graph; or it is the default stream, which cannot be used while any
// blocking stream of the process is captured. Neither touches the stream or ends a capture.
absl::Status check_stream(int device, Stream stream);

// The memory of a tensor that a user says lies on a device: the first byte that is read or written there, and the last.
struct MemoryRange {
  std::string_view tensor;
  const std::byte *first = nullptr, *last = nullptr;
};
// Whether `device` reaches the ends of all of them. INVALID_ARGUMENT names the first that it does not, and the kind of
// memory that is there. A kernel that is given such an address loses the device to the process. Asks the driver twice
// for each: some hundred nanoseconds.
absl::Status check_memory(int device, std::span<const MemoryRange> ranges);

// UNIMPLEMENTED: this build has no CUDA. UNAVAILABLE: this machine has no GPU, or none of that number.
absl::StatusOr<std::unique_ptr<DeviceQueue>> open_device(int device);
absl::StatusOr<std::unique_ptr<DeviceMark>> make_device_mark(int device);
// What went wrong in destructors of this process since the last call and was reported nowhere else; OK: nothing.
absl::Status take_kept_device_errors();
// Of the calling thread, one of Bascule's own: before it does anything with a device. See kernels/cuda_memory.h.
void own_thread_of_devices();
absl::Status why_no_cuda();  // OK in a build with CUDA; else UNIMPLEMENTED, and what to do

// Whether the error took this process's use of the device with it: only a new process helps. A payload of the status.
inline constexpr char kStickyDeviceError[] = "bascule/sticky-cuda-error";
inline bool is_sticky(const absl::Status& status) { return status.GetPayload(kStickyDeviceError).has_value(); }
// Of a wait for work on a device: whether that work is over, done or lost with the device. Nothing is read for it then.
inline bool is_over(const absl::Status& waited) { return waited.ok() || is_sticky(waited); }

}  // namespace bascule::inline v0
