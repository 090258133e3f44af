// What a sender registered: the source of its tensors, the layout made of them, and the plan that packs them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/layout.h"
#include "transport/plan.h"
#include "transport/tensor.h"

namespace bascule {

class Registration {
 public:
  // Reads the tensors' names, types, shapes and addresses. Tensors that are one storage under two names
  // travel once. With `wire_dtype` floating-point tensors of another type are cast to it.
  static absl::StatusOr<Registration> make(std::unique_ptr<TensorSource> source, std::optional<DType> wire_dtype);

  const Layout& layout() const { return layout_; }

  // Asks the source again: a storage that moved is followed, other strides get a new plan. INVALID_ARGUMENT
  // names the tensor whose name, type or shape is not what was registered, or that is no longer tied as it
  // was.
  absl::Status refresh();
  std::span<const kernels::Segment> segments() const { return plan_.segments(); }
  std::span<const std::byte* const> addresses() const { return addresses_; }  // of tensors, by Segment::tensor

 private:
  struct Known {  // one tensor as it was registered
    TensorSpec spec;
    std::vector<std::int64_t> strides;
    std::optional<std::size_t> tied_to;
  };
  bool strides_changed(std::span<const TensorView> views) const;

  std::unique_ptr<TensorSource> source_;
  std::vector<Known> known_;
  Layout layout_;
  Plan plan_;
  std::vector<const std::byte*> addresses_;
};

}  // namespace bascule
