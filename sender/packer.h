// Packer: how registered tensors become a slot, depending on where tensors and slot lie.
//
//   tensors ╲ slot   host memory                       the tensors' device
//   host memory      HostPacker: kernels::pack         refused: use a scheme with slots in host memory
//   a device         DeviceToHostPacker: packed there, DevicePacker: one launch on the sender's own stream
//                    copied out piece by piece
//
// The public thread calls pack() and digest(). If the packer enqueues(), both return at once, and another thread may
// then call finish(). One slot at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/registration.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// A slot's digest table, for the pass that packs or digests.
struct SlotTable {
  std::span<kernels::TileTotal> totals{};  // or none: no table is wanted
  DeviceTable* on_device = nullptr;        // the same memory, if a device fills it
};

class Packer {
 public:
  // Chooses one for tensors on `device` and slots of `scheme`. UNIMPLEMENTED names both and a suitable scheme, or says
  // that this build has no CUDA. Returns UNAVAILABLE if there is no such device.
  static absl::StatusOr<std::unique_ptr<Packer>> choose(const Scheme& scheme, int device, kernels::ThreadPool& pool);

  virtual ~Packer() = default;
  virtual bool enqueues() const = 0;
  // Whether pack() and digest() fill the slot's digest table: for any packing, and for this one. Devices do not for a
  // packing with arithmetic.
  virtual bool makes_tables() const { return false; }
  virtual bool makes_table(const Packing&) const { return makes_tables(); }
  // For packers on a device: lets the device write a slot's table, which must outlive the result. An error means that
  // this slot has no table. Blocks.
  virtual absl::StatusOr<std::unique_ptr<DeviceTable>> reach_table(std::span<kernels::TileTotal>) { return nullptr; }
  // Makes the memory of a new slot ready to be packed into. Blocks.
  virtual absl::Status reach(SlotMemory& memory);
  // The slot has left the ring: it is not packed into any more. Does not block.
  virtual void forget(const SlotMemory&) {}
  // Checks that the device can read the tensors and wait for their stream. Returns the errors of check_memory() and
  // DeviceQueue::check(). Starts no work on the device.
  virtual absl::Status check(const Packing& packing) = 0;
  // Prepares pack() for a packing that passed check(); does nothing if its plan is known. Blocks.
  virtual absl::Status plan(const Packing& packing) = 0;
  // Fills `slot`, which must live until finish(). If it is host memory, `bytes_done` grows meanwhile. With
  // `want_digest`, a packer that makes a table of the packing also fills `table`, unless it is empty.
  virtual absl::Status pack(const Packing& packing, SlotMemory& slot, bool want_digest,
                            std::atomic<std::uint64_t>& bytes_done, const SlotTable& table) = 0;
  // Digests a slot that the caller wrote, once the work on `stream` is done, and fills `table` as pack() does. If
  // `want_digest` is false, only waits for that work.
  virtual absl::Status digest(std::span<const std::byte> slot, bool want_digest, Stream stream,
                              const SlotTable& table) = 0;
  // Blocks until the slot is filled, or returns DEADLINE_EXCEEDED. Returns the digest, if one was requested.
  virtual absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) = 0;
  // The version of the last pack() settled. `rest`: seconds from the end of its pack until its workers had prepared it.
  virtual void took(double /*pack*/, double /*rest*/) {}
};

}  // namespace bascule::inline v0
