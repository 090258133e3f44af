// Plan: how tensors become a slot, or a slot becomes tensors, as segments with offsets. It is made once and used by
// every send, which supplies the addresses.
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
  // Fills `layout` from `tensors` by name, with casts if the types differ. Segment::tensor is the index into `tensors`.
  // INVALID_ARGUMENT names a tensor that is missing, has another shape, cannot be cast, or has more dimensions in
  // separate runs than kernels::kMaxRank.
  static absl::StatusOr<Plan> gather(const Layout& layout, std::span<const TensorView> tensors);

  // Makes `targets` of a slot of `layout`, for kernels::unpack. Segment::tensor is the index into `targets`. Of targets
  // that share a storage only the first is written; targets whose `data` is null share none. The targets must otherwise
  // have passed check_targets(). INVALID_ARGUMENT names the first target and part that is missing, has another shape,
  // cannot be cast, does not fill its target or has too many separate strides, and counts the rest. Unless `partial`, a
  // tensor of the layout that no target uses is also such a difference.
  static absl::StatusOr<Plan> scatter(const Layout& layout, std::span<const TargetTensor> targets, bool partial);

  std::span<const kernels::Segment> segments() const { return segments_; }  // sorted by slot_offset

  // For scatter(): whether at least one part takes each tensor of the layout whole.
  bool reads_all() const { return reads_all_; }

 private:
  std::vector<kernels::Segment> segments_;
  bool reads_all_ = true;
};

}  // namespace bascule::inline v0
