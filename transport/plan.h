// Plan: how the tensors of one side become the slot of the other, or the slot becomes tensors, as segments with
// offsets. Made once, used by every send: addresses come in at the moment of use.
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
  // Fills `layout` from `tensors`: for each tensor of the layout, the one of that name, cast where the types
  // differ. Segment::tensor is the index into `tensors`. INVALID_ARGUMENT names a tensor that is not there, has another
  // shape, cannot be cast, or has more dimensions in separate runs than kernels::kMaxRank.
  static absl::StatusOr<Plan> gather(const Layout& layout, std::span<const TensorView> tensors);

  // Makes `targets` of a slot of `layout`, for kernels::unpack. Segment::tensor is the index into `targets`; of targets
  // that are one storage only the first one is written (where `data` is null, each is one of its own). Takes targets
  // that passed check_targets() but for that. INVALID_ARGUMENT names the first target and part that is not there, has
  // another shape, cannot be cast, does not fill its target or has too many separate strides, and counts the rest.
  // Unless `partial`, a tensor of the layout of which no target takes anything is such a difference, too.
  static absl::StatusOr<Plan> scatter(const Layout& layout, std::span<const TargetTensor> targets, bool partial);

  std::span<const kernels::Segment> segments() const { return segments_; }  // sorted by slot_offset

  // Of scatter(): whether each tensor of the layout is taken whole by one part at least.
  bool reads_all() const { return reads_all_; }

 private:
  std::vector<kernels::Segment> segments_;
  bool reads_all_ = true;
};

}  // namespace bascule::inline v0
