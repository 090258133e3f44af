// What a sender registered: the source of its tensors, the layout made of them, and the plan that packs them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/sender/view_table.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// What a packer needs of a source's tensors; valid until the next call of packing().
struct Packing {
  std::span<const kernels::Segment> segments;
  std::span<const std::byte* const> addresses;  // of tensors, by Segment::tensor
  std::span<const TensorView> views;            // the tensors themselves, in that order
  std::uint64_t slot_bytes = 0;
  bool registered = true;         // the registered tensors, not others
  std::uint64_t plan_number = 0;  // other segments have another one
  bool in_pieces = false;         // bytes leave while they are packed
  Stream stream = nullptr;        // that writes the tensors, where they lie on a device
};

class Registration {
 public:
  // Reads the tensors' names, types, shapes and addresses. Tensors that are one storage under two names
  // travel once. With `wire_dtype` floating-point tensors of another type are cast to it.
  static absl::StatusOr<Registration> make(std::unique_ptr<TensorSource> source, std::optional<DType> wire_dtype);

  // Without tensors of its own: versions are other weights, or loans that the caller fills. The stream is the device's
  // default one. INVALID_ARGUMENT names the tensor and what is wrong.
  static absl::StatusOr<Registration> of_specs(std::vector<TensorSpec> specs, int device,
                                               std::optional<DType> wire_dtype);

  const Layout& layout() const { return layout_; }
  bool has_tensors() const { return source_ != nullptr; }
  // Arranges the layout anew, before anybody uses it: these tensors side by side, where that can be. A packing of
  // before is one no more.
  absl::Status fuse(std::span<const std::vector<std::string>> requests);

  int device() const { return device_; }                                   // on which the tensors lie, or kHost
  Stream stream() const { return source_ ? source_->stream() : nullptr; }  // as of the last packing()

  bool casts() const;  // some tensor travels as another type

  // Asks the registered source again, or `weights` where it is not null: a storage that moved is followed, other
  // strides get a new plan. FAILED_PRECONDITION: neither is there. INVALID_ARGUMENT names the tensor whose name, type
  // or shape is not what was registered, or that is no longer tied as it was. `weights` may have their own order, and
  // may leave tied names out.
  absl::StatusOr<Packing> packing(TensorSource* weights = nullptr);

  // Single copy: INVALID_ARGUMENT names two tensors that share bytes and are not one storage under two names; they
  // would be torn apart. See check_apart().
  absl::Status check_apart();
  // Single copy: moves the registered tensors to `places` (by name), which `keeps` keeps alive.
  absl::Status move_into(const std::map<std::string_view, std::byte*>& places, std::shared_ptr<void> keeps);
  absl::Status check_moved();  // INVALID_ARGUMENT names a tensor that lies elsewhere by now

 private:
  struct Known {  // one tensor as it was registered
    TensorSpec spec;
    std::optional<std::size_t> tied_to;
  };
  absl::Status refresh();
  absl::Status check(const TensorView& view, const Known& known) const;
  absl::StatusOr<Packing> packing_of(TensorSource& weights);

  std::unique_ptr<TensorSource> source_;
  int device_ = kHost;
  std::vector<Known> known_;
  std::vector<std::pair<std::size_t, std::size_t>> ties_;  // a tensor, and the one whose storage it is
  Layout layout_;
  Plan plan_;
  std::uint64_t plan_number_ = 1, last_plan_number_ = 1;
  bool plan_is_stale_ = false;         // it is of another layout
  ViewTable planned_;                  // the views that it was made of
  std::uint64_t edition_ = 0;          // of the source, when these were found as planned
  std::span<const TensorView> views_;  // the source's, as of the last refresh()
  std::vector<const std::byte*> addresses_;
  Plan other_plan_;  // of weights that are not the registered ones
  std::vector<const std::byte*> other_addresses_;
  std::vector<const std::byte*> places_;  // single copy: where the tensors were moved to
};

}  // namespace bascule::inline v0
