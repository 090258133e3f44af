// Fusion: tensors that a worker wants to read as one. In place where the sender laid them side by side; else copied
// together, into memory of the worker's own, one for each slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/receiver/options.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>

namespace bascule::inline v0 {

class Fusion {
 public:
  Fusion() = default;  // nothing was requested

  // INVALID_ARGUMENT names the order whose tensors cannot be joined (Layout::join), or whose name the sender uses.
  static absl::StatusOr<Fusion> make(std::span<const FusedOrder> orders, const Layout& layout);

  // Of the copies of one slot; 0: everything is read in place.
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  // The fused tensors of `slot`, or of the copies in `memory`. Views into both, and into this object.
  std::vector<TensorView> views(std::span<const std::byte> slot, std::span<const std::byte> memory) const;
  // How the copies are made of a slot, and where they lie in `memory`, for kernels::unpack or its twin on a device.
  std::span<const kernels::Segment> segments() const { return plan_.segments(); }
  std::vector<std::byte*> addresses(std::span<std::byte> memory) const;
  // Makes the copies of `slot`. Prepare thread.
  void copy(std::span<const std::byte> slot, std::span<std::byte> memory, kernels::ThreadPool& pool) const;

 private:
  struct Joined {
    TensorSpec spec;
    bool in_place = false;
    std::uint64_t offset = 0;  // bytes from the slot's beginning, or from the memory's
  };
  std::vector<Joined> tensors_;
  Plan plan_;                                // of those that are copied
  std::vector<std::uint64_t> copy_offsets_;  // of its targets, from the memory's beginning
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace bascule::inline v0
