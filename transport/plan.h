// Plan: how to copy tensors into a slot, or a slot into tensors, as segments with offsets. It is made once and reused
// by every send, which supplies the addresses.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/kernels/segment.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/target.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class Plan {
 public:
  // Plans to fill `layout` from `tensors` by name, with casts if the types differ, and with their arithmetic.
  // Segment::tensor is the index into `tensors`, followed by factors_of(tensors). Returns INVALID_ARGUMENT, naming the
  // tensor, if one is missing, has another shape, cannot be cast or computed, or still has more than kernels::kMaxRank
  // dimensions after merge_dimensions().
  static absl::StatusOr<Plan> gather(const Layout& layout, std::span<const TensorView> tensors);

  // Plans to fill `targets` from a slot of `layout`, for kernels::unpack. Segment::tensor is the index into `targets`.
  // Of several targets that share a storage, only the first is written. `data` may be null here, and such targets share
  // nothing; in all else the targets must have passed check_targets(). Returns INVALID_ARGUMENT if a part is missing,
  // has another shape, cannot be cast, does not fill its target or has too many separate strides, and, unless
  // `partial`, if no target uses some tensor of the layout. The text names the first such target and part, and counts
  // the rest.
  static absl::StatusOr<Plan> scatter(const Layout& layout, std::span<const TargetTensor> targets, bool partial);

  std::span<const kernels::Segment> segments() const { return segments_; }         // sorted by slot_offset
  std::span<const kernels::Arithmetic> arithmetic() const { return arithmetic_; }  // what the segments refer to

  // For scatter(): of how many regions the layout's slots consist.
  std::uint32_t regions() const { return regions_; }
  // For scatter(): whether, for each tensor of the layout, at least one part takes it whole.
  bool reads_all() const { return reads_all_; }

 private:
  std::vector<kernels::Segment> segments_;
  std::vector<kernels::Arithmetic> arithmetic_;
  std::uint32_t regions_ = 1;
  bool reads_all_ = true;
};

}  // namespace bascule::inline v0
