// The GPU work of sender and receiver, as interfaces without CUDA: they are the same in a build without CUDA, where
// open_device() returns an error.
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

// Segments as a device reads them, from tensors into a slot or from a slot into tensors. Freeing one waits for the
// device.
class DevicePlan {
 public:
  virtual ~DevicePlan() = default;
};

// Memory outside a device, which the device copies to and from: a peer GPU's memory, or host memory, registered with
// the device or, if that is impossible (mappings of files), reached through pinned buffers. Must be destroyed before
// the memory; the destructor waits for copies under way.
class HostWindow {
 public:
  virtual ~HostWindow() = default;
  virtual const std::string& how() const = 0;  // for reports: "registered with device 0"
  // How much one copy should move: kHostPieceBytes, or from a peer GPU kDevicePieceBytes.
  virtual std::uint64_t piece_bytes() const = 0;
};

// The size of one packed piece, which readers can copy while the next one is packed, and of one copy from a peer GPU;
// and the size of one copy to or from a host, which is slower. Both are whole tiles of the digest.
inline constexpr std::uint64_t kDevicePieceBytes = std::uint64_t{32} << 20;
inline constexpr std::uint64_t kHostPieceBytes = std::uint64_t{16} << 20;

// One device and Bascule's own stream there, with one operation under way at a time: run(), digest(), run_behind() and
// copy_in() enqueue it and return, finish() waits for it. `caller` is a user's stream on that device: work queued on it
// before the call comes first, and work queued later waits on the device; without one nothing waits.
//
// Threads: any, one at a time. After a sticky error every later call returns it; resetting the device counts as one.
// Destruction waits for work under way. A failed call does not affect later ones. A `caller` that check_stream()
// refuses is refused before anything is enqueued.
class DeviceQueue {
 public:
  using Caller = std::optional<Stream>;
  enum class Into { kSlot, kTensors };  // kernels::pack, kernels::unpack

  virtual ~DeviceQueue() = default;
  virtual int device() const = 0;

  // The error with which every call below would refuse `caller` (see check_stream()) or a lost device. Enqueues
  // nothing.
  virtual absl::Status check(Stream caller) = 0;

  // Blocks while the plan is uploaded.
  virtual absl::StatusOr<std::unique_ptr<DevicePlan>> plan(Into into, std::span<const kernels::Segment> segments,
                                                           std::size_t tensors, std::uint64_t slot_bytes) = 0;
  // Allocates uninitialised device memory, freed with the last copy of the pointer. Blocks. RESOURCE_EXHAUSTED says how
  // much `what` ("the second set of the tensors") needs and how much the device has.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) = 0;

  // Packs or unpacks; allocates nothing. The plan must live until finish().
  virtual absl::Status run(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                           bool want_digest, Caller caller) = 0;
  virtual absl::Status digest(std::span<const std::byte> slot, Caller caller) = 0;
  // Enqueues the digest of bytes [begin, end) of a slot, after the work queued so far on `producer`, which is Bascule's
  // own stream on this device (null: the bytes are there). `producer` waits for nothing. As with copy_in(), the first
  // piece begins at byte 0 and each later one where the last one ended; the piece that ends the slot completes its
  // digest.
  virtual absl::Status digest_behind(Stream producer, std::span<const std::byte> slot, std::uint64_t begin,
                                     std::uint64_t end) = 0;
  virtual absl::Status run_behind(Stream caller) = 0;  // enqueues nothing but a wait for what `caller` was given

  // ---- slots in host memory ----

  // `place` is kHost, or the device whose memory it is, at an address that this device reaches. Blocks: registering
  // takes about half a second per GiB.
  virtual absl::StatusOr<std::shared_ptr<HostWindow>> open_window(std::span<const std::byte> bytes, int place,
                                                                  Access access) = 0;
  // Like run() with a plan into a slot, but in pieces, so that copy_out() can start before all is packed.
  virtual absl::Status run_in_pieces(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                                     bool want_digest, Caller caller) = 0;
  // Raises `bytes_done` after each piece that run_in_pieces() has packed. Blocks until all are packed.
  virtual absl::Status watch_pieces(std::atomic<std::uint64_t>& bytes_done, Deadline deadline) = 0;
  // Copies the slot of that run_in_pieces() to the window, each piece as soon as it is packed, and raises `bytes_done`
  // after each. Blocks, mostly asleep. DEADLINE_EXCEEDED: some of it is not there yet.
  virtual absl::Status copy_out(const std::byte* slot, HostWindow& to, std::atomic<std::uint64_t>& bytes_done,
                                Deadline deadline) = 0;
  // Enqueues a copy of bytes [begin, end) of the window to the same place of `slot`; many may be under way. Through
  // buffers it blocks until the bytes are read. With `want_digest` copies begin at tiles: the first at 0, each later
  // one where the last one ended; the copy that ends the slot completes its digest, most of which was made while pieces
  // were still coming.
  virtual absl::Status copy_in(HostWindow& from, std::uint64_t begin, std::uint64_t end, std::span<std::byte> slot,
                               bool want_digest) = 0;
  // Copies a whole slot to the window. Blocks, mostly asleep. DEADLINE_EXCEEDED: some of it is not there yet.
  virtual absl::Status copy_to_host(const std::byte* slot, HostWindow& to, Deadline deadline) = 0;
  // How many bytes have come of the slot whose copy_in() from byte 0 was the last. Does not block.
  virtual absl::StatusOr<std::uint64_t> arrived() = 0;

  // Blocks until the device is done; returns the digest if one was requested. DEADLINE_EXCEEDED: it is not done yet.
  virtual absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) = 0;
  // Blocks until the device is done with all enqueued work, including the work of failed calls; until then it may read
  // and write the memory that they named. Returns OK for a lost device. DEADLINE_EXCEEDED: it is not done yet.
  virtual absl::Status settle(Deadline deadline) = 0;
};

// A point in the work of a user's stream.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual int device() const = 0;
  // Marks the point after all work queued so far; returns at once. Returns the errors of check_stream().
  virtual absl::Status record(Stream stream) = 0;
  virtual absl::Status wait(Deadline deadline) const = 0;  // until the device has passed it
};

// Whether work on `device` can be ordered against a user's `stream`. INVALID_ARGUMENT: it belongs to another device.
// FAILED_PRECONDITION: it is being captured into a graph; or it is the default stream, which cannot be used while any
// blocking stream of the process is captured. The check neither touches the stream nor ends a capture.
absl::Status check_stream(int device, Stream stream);

// The memory of a tensor that, according to the user, lies on a device: the first and last byte read or written there.
struct MemoryRange {
  std::string_view tensor;
  const std::byte *first = nullptr, *last = nullptr;
};
// Whether `device` reaches both ends of every range. INVALID_ARGUMENT names the first that it does not reach, and the
// kind of memory there. A kernel that is given such an address makes the process lose the device. Costs two driver
// calls per range, some hundred nanoseconds.
absl::Status check_memory(int device, std::span<const MemoryRange> ranges);

// UNIMPLEMENTED: this build has no CUDA. UNAVAILABLE: this machine has no GPU, or none with that number.
absl::StatusOr<std::unique_ptr<DeviceQueue>> open_device(int device);
absl::StatusOr<std::unique_ptr<DeviceMark>> make_device_mark(int device);
// Returns the error of a destructor in this process since the last call that was reported nowhere else, or OK.
absl::Status take_kept_device_errors();
// Bascule's own threads call this before they do anything with a device. See kernels/cuda_memory.h.
void own_thread_of_devices();
absl::Status why_no_cuda();  // OK in a build with CUDA; else UNIMPLEMENTED, and what to do

// The payload of a status after which this process cannot use the device any longer: only a new process helps.
inline constexpr char kStickyDeviceError[] = "bascule/sticky-cuda-error";
inline bool is_sticky(const absl::Status& status) { return status.GetPayload(kStickyDeviceError).has_value(); }
// Whether the work that was waited for is over, either done or lost with the device, and so no longer reads anything.
inline bool is_over(const absl::Status& waited) { return waited.ok() || is_sticky(waited); }

}  // namespace bascule::inline v0
