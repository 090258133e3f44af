// Weights: the tensors of one version, by name.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// The tensors of one slot, by the sender's names; a tied tensor is listed under each of its names. They are read-only
// memory, on the host or on a device (TensorView::device). In a receiver that copies, these are instead the tensors of
// one of the engine's own sets, by the targets' names.
class Weights {
 public:
  std::span<const TensorView> tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;  // null if there is none

 private:
  friend class WeightsBuilder;
  std::vector<TensorView> tensors_;  // sorted by name
};

}  // namespace bascule::inline v0
