// Plan: how the tensors of one side become the slot of the other, as segments with offsets. Made once, used
// by every send: addresses come in at the moment of use.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/pack.h"
#include "transport/layout.h"
#include "transport/tensor.h"

namespace bascule {

class Plan {
 public:
  // Fills `layout` from `tensors`: for each tensor of the layout, the one of that name, cast where the types
  // differ. Segment::tensor is the index into `tensors`. INVALID_ARGUMENT names a tensor that is not there, has another
  // shape, cannot be cast, or has more dimensions in separate runs than kernels::kMaxRank.
  static absl::StatusOr<Plan> gather(const Layout& layout, std::span<const TensorView> tensors);

  std::span<const kernels::Segment> segments() const { return segments_; }  // sorted by slot_offset

 private:
  std::vector<kernels::Segment> segments_;
};

}  // namespace bascule
