// Fusion: tensors that a worker wants to read as one. If the sender laid them side by side, they are read in place;
// otherwise they are copied together, into the worker's own memory, once per slot. Of a slot of several regions all
// tensors are copied, since their boxes lie apart.
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
#include <bascule/transport/target.h>

namespace bascule::inline v0 {

class Fusion {
 public:
  Fusion() = default;  // nothing was requested

  // INVALID_ARGUMENT names a FusedOrder whose parts cannot be joined (Layout::join), or whose name the sender uses.
  static absl::StatusOr<Fusion> make(std::span<const FusedOrder> orders, const Layout& layout);

  // Whether views() has all tensors of the layout, under all their names.
  bool has_all() const { return has_all_; }
  // The size of one slot's copies; 0 if everything is read in place.
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  // Returns the fused tensors: views into `slot`, or into the copies in `memory`. Their names and shapes lie in this
  // object.
  std::vector<TensorView> views(std::span<const std::byte> slot, std::span<const std::byte> memory) const;
  // How the copies are made from a slot, and where they lie in `memory`, for kernels::unpack or its device version.
  std::span<const kernels::Segment> segments() const { return plan_.segments(); }
  std::vector<std::byte*> addresses(std::span<std::byte> memory) const;
  // Makes the copies of `slot`, and its digest if wanted. Prepare thread.
  std::optional<Digest> copy(std::span<const std::byte> slot, std::span<std::byte> memory, bool want_digest,
                             kernels::ThreadPool& pool) const;

 private:
  struct Joined {
    TensorSpec spec;
    bool in_place = false;
    std::uint64_t offset = 0;  // bytes from the beginning of the slot or the memory
  };
  void add_copy(TargetTensor copy, std::vector<TargetTensor>& copies);

  std::vector<Joined> tensors_;
  bool has_all_ = false;
  Plan plan_;                                // the plan of the copied tensors
  std::vector<std::uint64_t> copy_offsets_;  // where the plan's targets begin, from the memory's beginning
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace bascule::inline v0
