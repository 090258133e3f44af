// Packer: how registered tensors become a slot, by where the two lie.
//
//   tensors ╲ slot   host memory                       the tensors' device
//   host memory      HostPacker: kernels::pack         refused: a scheme of host memory would do
//   a device         DeviceToHostPacker: packed there, DevicePacker: one launch on a stream of the sender's own
//                    copied out piece by piece
//
// pack() and digest() come from the public thread; a packer that enqueues returns from them at once, and finish() may
// then be called by another thread. One slot at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/registration.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class Packer {
 public:
  // For tensors on `device` and slots of `scheme`. UNIMPLEMENTED names both and a scheme that would do, or says that
  // this build has no CUDA; UNAVAILABLE: no such device.
  static absl::StatusOr<std::unique_ptr<Packer>> choose(const Scheme& scheme, int device, kernels::ThreadPool& pool);

  virtual ~Packer() = default;
  virtual bool enqueues() const = 0;
  // Makes the memory of a new slot ready to be packed into. Blocks.
  virtual absl::Status reach(SlotMemory& memory);
  // Whether the device reads the tensors and can be ordered behind their stream: errors as of check_memory() and
  // DeviceQueue::check(). Nothing is done on the device.
  virtual absl::Status check(const Packing& packing) = 0;
  // Makes ready what pack() needs of a packing that check() found right; does nothing where its plan is known. Blocks.
  virtual absl::Status plan(const Packing& packing) = 0;
  // Fills `slot`, which lives until finish(). `bytes_done` grows meanwhile where that is host memory.
  virtual absl::Status pack(const Packing& packing, SlotMemory& slot, bool want_digest,
                            std::atomic<std::uint64_t>& bytes_done) = 0;
  // The digest of a slot that the caller wrote, behind what is on `stream`; with `want_digest` false it only waits for
  // that.
  virtual absl::Status digest(std::span<const std::byte> slot, bool want_digest, Stream stream) = 0;
  // Blocks until the slot is filled; the digest where one was wanted. DEADLINE_EXCEEDED: it is not yet.
  virtual absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) = 0;
};

}  // namespace bascule::inline v0
