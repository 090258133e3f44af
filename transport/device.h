// Interfaces, free of CUDA, for the GPU work of sender and receiver. A build without CUDA has the same interfaces, and
// open_device() returns an error there.
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
#include <bascule/kernels/digest_function.h>
#include <bascule/kernels/segment.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// Segments in the form in which a device reads them, from tensors into a slot or from a slot into tensors. Destroying a
// plan waits for the device.
class DevicePlan {
 public:
  virtual ~DevicePlan() = default;
};

// Memory outside a device that the device copies to and from: a peer GPU's memory, or host memory. Host memory is
// registered with the device or, if that is impossible (mappings of files), reached through pinned buffers. Destroy the
// window before its memory; the destructor waits for copies under way.
class HostWindow {
 public:
  virtual ~HostWindow() = default;
  virtual const std::string& how() const = 0;  // for reports: "registered with device 0"
  // How many bytes one copy should move: kDevicePieceBytes from a peer GPU, otherwise kHostPieceBytes.
  virtual std::uint64_t piece_bytes() const = 0;
};

// Memory of the host to which a device writes the totals of a slot's tiles. Destroy it after finish() of the work that
// was given it, or settle().
class DeviceTable {
 public:
  virtual ~DeviceTable() = default;
  // One for each tile, once finish() has returned OK. Of tiles that were not wanted, nothing is known.
  virtual std::span<const kernels::TileTotal> totals() const = 0;
};

// What work on a slot makes of its bytes: the digest of all, or totals of tiles, or both.
struct Digesting {
  Digesting(bool all, DeviceTable* table = nullptr) : all(all), table(table) {}  // NOLINT(google-explicit-constructor)
  bool all;
  DeviceTable* table;  // if `all`, it must want all tiles; null: no totals
};

// kDevicePieceBytes is the size of the first piece that is packed, which readers can copy while the next one is packed,
// and of one copy from a peer GPU. Later pieces are larger. kHostPieceBytes is the size of one copy to or from host
// memory, which is slower. Both are multiples of the digest's tile.
inline constexpr std::uint64_t kDevicePieceBytes = std::uint64_t{32} << 20;
inline constexpr std::uint64_t kHostPieceBytes = std::uint64_t{16} << 20;

// For DeviceQueue::plan(), about slots of several regions.
struct OfRegions {
  std::uint64_t first_page = 0;  // Into::kSlot: the slot is a region of a version, whose first page has this number
  std::uint32_t regions = 1;     // Into::kTensors: the slot consists of so many, perhaps of several devices
};

// One device and Bascule's own stream there, with one operation under way at a time: run(), digest(), run_behind() and
// copy_in() enqueue an operation and return, and finish() waits for it. `caller` is a user's stream on that device: the
// operation starts after all work queued there before the call, and work queued there later waits for the operation, on
// the device. Without a `caller`, neither waits.
//
// Threads: any, one at a time. After a sticky error every later call returns that error; a reset of the device counts
// as a sticky error. Any other failed call does not affect later ones. Destruction waits for work under way. If
// check_stream() refuses `caller`, the call returns that error before it enqueues anything.
class DeviceQueue {
 public:
  using Caller = std::optional<Stream>;
  enum class Into { kSlot, kTensors };  // kernels::pack, kernels::unpack

  virtual ~DeviceQueue() = default;
  virtual int device() const = 0;

  // Returns the error that every call below would return for this `caller` (see check_stream()) or for a lost device,
  // else OK. Enqueues nothing.
  virtual absl::Status check(Stream caller) = 0;

  // Makes a plan. Only Into::kSlot takes arithmetic. Blocks until the plan is uploaded.
  virtual absl::StatusOr<std::unique_ptr<DevicePlan>> plan(Into into, std::span<const kernels::Segment> segments,
                                                           std::size_t tensors, std::uint64_t slot_bytes,
                                                           std::span<const kernels::Arithmetic> arithmetic,
                                                           OfRegions of = {}) = 0;
  // Allocates uninitialised device memory, freed with the last copy of the pointer. Blocks. Returns RESOURCE_EXHAUSTED
  // if memory is short; the text says how much `what` ("the second set of the tensors") needs and how much the device
  // has.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) = 0;

  // Makes a table for slots of `tiles` tiles, for all totals or, if `wanted` has as many entries, for those that are
  // not 0 there. Blocks.
  virtual absl::StatusOr<std::unique_ptr<DeviceTable>> make_table(std::uint64_t tiles,
                                                                  std::span<const std::uint8_t> wanted) = 0;
  // Makes one of memory that is there, such as pages that other processes map; `totals` must outlive it. Blocks.
  // Returns an error if the device cannot write there.
  virtual absl::StatusOr<std::unique_ptr<DeviceTable>> open_table(std::span<kernels::TileTotal> totals) = 0;

  // Enqueues the plan's pack or unpack; allocates nothing. The plan must live until finish(). A pack with arithmetic
  // stores no totals.
  virtual absl::Status run(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                           Digesting digesting, Caller caller) = 0;
  // Enqueues the digest of a slot. If only totals are wanted, only their tiles are read.
  virtual absl::Status digest(std::span<const std::byte> slot, Digesting digesting, Caller caller) = 0;
  // Enqueues the digest of bytes [begin, end) of a slot, after the work queued so far on `producer`, one of Bascule's
  // own streams on this device (null: the bytes are already there). `producer` itself does not wait. As with copy_in(),
  // the first piece begins at byte 0 and each later one where the last one ended; the piece that ends the slot
  // completes its digest.
  virtual absl::Status digest_behind(Stream producer, std::span<const std::byte> slot, std::uint64_t begin,
                                     std::uint64_t end) = 0;
  virtual absl::Status run_behind(Stream caller) = 0;  // enqueues only a wait for the work queued on `caller`

  // ---- slots in host memory ----

  // `place` says where `bytes` lie: kHost, or the device whose memory they are, at an address that this device reaches.
  // Blocks, since registering takes about half a second per GiB.
  virtual absl::StatusOr<std::shared_ptr<HostWindow>> open_window(std::span<const std::byte> bytes, int place,
                                                                  Access access) = 0;
  // Like run() with a plan made for Into::kSlot, but packs in pieces, so that copy_out() can start before everything is
  // packed. Raises `bytes_done`, if given, for pieces that are packed before all are enqueued.
  virtual absl::Status run_in_pieces(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                                     Digesting digesting, Caller caller, std::atomic<std::uint64_t>* bytes_done) = 0;
  // Raises `bytes_done` as the device finishes each piece of run_in_pieces(). Blocks until all are packed.
  virtual absl::Status watch_pieces(std::atomic<std::uint64_t>& bytes_done, Deadline deadline) = 0;
  // Copies the slot of the last run_in_pieces() to the window, each piece as soon as it is packed, and raises
  // `bytes_done` after each. Blocks, mostly asleep. Returns DEADLINE_EXCEEDED if not all bytes have arrived.
  virtual absl::Status copy_out(const std::byte* slot, HostWindow& to, std::atomic<std::uint64_t>& bytes_done,
                                Deadline deadline) = 0;
  // Enqueues a copy of bytes [begin, end) of the window to the same offset in `slot`; many copies may be under way. If
  // the window uses pinned buffers, blocks until the bytes are read from it. With a digest, each copy must begin at a
  // tile: the first at byte 0, each later one where the last one ended. Most of the digest is then made while pieces
  // are still arriving, and the copy that ends the slot completes it. With totals alone, copies of whole tiles may come
  // in any order.
  virtual absl::Status copy_in(HostWindow& from, std::uint64_t begin, std::uint64_t end, std::span<std::byte> slot,
                               Digesting digesting) = 0;
  // Copies a whole slot to the window. Blocks, mostly asleep. Returns DEADLINE_EXCEEDED if not all bytes have arrived.
  virtual absl::Status copy_to_host(const std::byte* slot, HostWindow& to, Deadline deadline) = 0;
  // Returns how many bytes have arrived in the slot that copy_in() is filling: the slot to which it last copied byte 0.
  // Does not block.
  virtual absl::StatusOr<std::uint64_t> arrived() = 0;

  // Blocks until the device has done the operation; returns the digest if one was requested. Returns DEADLINE_EXCEEDED
  // if it is not done yet.
  virtual absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) = 0;
  // The sum of the page hashes of the last run() with `want_digest`, once finish() has returned OK: with a first page
  // other than 0, a region's part of its version's total.
  virtual kernels::TileTotal total() const = 0;
  // Blocks until the device has done all enqueued work, including the work of failed calls; until then it may still
  // read and write the memory that those calls were given. Returns OK for a lost device, and DEADLINE_EXCEEDED if work
  // is still under way.
  virtual absl::Status settle(Deadline deadline) = 0;
};

// A point in the work of a user's stream.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual int device() const = 0;
  // Marks the point after all work queued on `stream` so far, without waiting for it. Returns the errors of
  // check_stream().
  virtual absl::Status record(Stream stream) = 0;
  virtual absl::Status wait(Deadline deadline) const = 0;  // blocks until the device has passed the point
};

// Returns OK if work on `device` can be ordered before and after work on a user's `stream`; INVALID_ARGUMENT if the
// stream belongs to another device; FAILED_PRECONDITION if it is being captured into a graph, or is the default stream,
// which cannot be used while any blocking stream of the process is being captured. The check neither touches the stream
// nor ends a capture.
absl::Status check_stream(int device, Stream stream);

// The first and last byte to be read or written of a tensor that, according to the user, lies on a device.
struct MemoryRange {
  std::string_view tensor;
  const std::byte *first = nullptr, *last = nullptr;
};
// Returns OK if `device` reaches both ends of every range; otherwise INVALID_ARGUMENT, which names the first tensor
// that it does not reach and the kind of memory there. This check matters because a kernel that is given such an
// address makes the process lose the device. It costs two driver calls per range, some hundred nanoseconds.
absl::Status check_memory(int device, std::span<const MemoryRange> ranges);

// Both return UNIMPLEMENTED if this build has no CUDA, and UNAVAILABLE if this machine has no GPU, or none with that
// number.
absl::StatusOr<std::unique_ptr<DeviceQueue>> open_device(int device);
absl::StatusOr<std::unique_ptr<DeviceMark>> make_device_mark(int device);
// Returns the first error since the last call that a destructor in this process met and could not report, or OK.
absl::Status take_kept_device_errors();
// Bascule's own threads call this before they use any device. See kernels/cuda_memory.h.
void own_thread_of_devices();
absl::Status why_no_cuda();  // OK in a build with CUDA; else UNIMPLEMENTED, saying what to do

// The payload that marks a status after which this process can never use the device again; only a new process can.
inline constexpr char kStickyDeviceError[] = "bascule/sticky-cuda-error";
inline bool is_sticky(const absl::Status& status) { return status.GetPayload(kStickyDeviceError).has_value(); }
// Returns true if `waited`, the result of a wait, means that the work is over: done, or lost with the device. Such work
// no longer reads anything.
inline bool is_over(const absl::Status& waited) { return waited.ok() || is_sticky(waited); }

}  // namespace bascule::inline v0
