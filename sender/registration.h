// Registration: a sender's registered tensors, with their source, the layout made from them, and the plan to pack them.
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

// What a packer needs from a source's tensors; valid until the next call of packing().
struct Packing {
  std::span<const kernels::Segment> segments{};
  std::span<const kernels::Arithmetic> arithmetic{};  // what the segments refer to
  std::span<const std::byte* const> addresses{};      // the tensors' addresses, by Segment::tensor
  std::span<const TensorView> views{};                // the tensors themselves, in that order
  std::span<const TensorView> factors{};              // and after them, the factors of products
  std::uint64_t slot_bytes = 0;
  bool registered = true;         // these are the registered tensors, not others
  std::uint64_t plan_number = 0;  // changes with the segments
  std::uint64_t read_number = 0;  // changes whenever addresses were read again, and may be others
  bool in_pieces = false;         // bytes leave while they are packed
  Stream stream = nullptr;        // the stream that writes the tensors, if they lie on a device
};

class Registration {
 public:
  // Reads the tensors' names, types, shapes and addresses. A storage with two names is sent once. If `wire_dtype` is
  // given, floating-point tensors of another type are cast to it.
  static absl::StatusOr<Registration> make(std::unique_ptr<TensorSource> source, std::optional<DType> wire_dtype,
                                           std::string description = {});

  // Makes a registration without tensors: versions come from other weights, or from loans that the caller fills. The
  // stream is the device's default one. INVALID_ARGUMENT names the tensor and the problem.
  static absl::StatusOr<Registration> of_specs(std::vector<TensorSpec> specs, int device,
                                               std::optional<DType> wire_dtype, std::string description = {},
                                               const std::optional<Division>& division = std::nullopt);

  // Makes a registration of a layout that another sender has made, without tensors.
  static Registration of_layout(Layout layout, int device);

  const Layout& layout() const { return *layout_; }
  const SharedLayout& shared_layout() const { return layout_; }
  bool has_tensors() const { return source_ != nullptr; }
  // Call it before the layout is used: rearranges it so that the tensors of each request lie side by side, if possible.
  // Earlier packings become invalid.
  absl::Status fuse(std::span<const std::vector<std::string>> requests);

  int device() const { return device_; }                                   // where the tensors lie: a device, or kHost
  Stream stream() const { return source_ ? source_->stream() : nullptr; }  // as of the last packing()

  bool casts() const;                                            // whether any tensor is sent as another type
  bool computes() const { return !plan_.arithmetic().empty(); }  // whether any is scaled or merged while it is sent
  // Those that are sent as f16 and may be infinite there, though the trainer's are not: they are cast to it, or
  // `packing` computes them.
  std::vector<Placement> may_overflow(const Packing& packing) const;

  // Asks `weights` or, if that is null, the registered source for its tensors. A storage may have moved, and new
  // strides get a new plan. Returns FAILED_PRECONDITION if there is neither. INVALID_ARGUMENT names the tensor whose
  // name, type or shape differs from the registered one, or that is no longer tied as it was. `weights` may have
  // another order, and may omit tied names.
  absl::StatusOr<Packing> packing(TensorSource* weights = nullptr);

  // Single copy: INVALID_ARGUMENT names two tensors that share bytes, since a move would separate them. Two names of
  // one storage are fine. See check_apart().
  absl::Status check_apart();
  // Single copy: moves the registered tensors to `places` (by name), which `keeps` keeps alive.
  absl::Status move_into(const std::map<std::string_view, std::byte*>& places, std::shared_ptr<void> keeps);
  absl::Status check_moved();  // INVALID_ARGUMENT names a tensor that has left its place

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
  SharedLayout layout_ = std::make_shared<const Layout>();
  Plan plan_;
  std::uint64_t plan_number_ = 1, last_plan_number_ = 1, read_number_ = 0;
  bool plan_is_stale_ = false;         // plan_ belongs to another layout
  ViewTable planned_;                  // the views from which plan_ was made
  std::uint64_t edition_ = 0;          // the source's edition when its views last matched planned_
  std::uint64_t moves_ = 0;            // and the number of its moves
  std::span<const TensorView> views_;  // the source's views, as of the last refresh()
  std::vector<TensorView> factors_, other_factors_;
  std::vector<const std::byte*> addresses_;
  Plan other_plan_;  // for weights other than the registered ones
  std::vector<const std::byte*> other_addresses_;
  std::vector<const std::byte*> places_;  // single copy: where the tensors were moved to
};

}  // namespace bascule::inline v0
