#include "sender/registration.h"

#include <algorithm>
#include <map>
#include <utility>

#include "transport/text.h"

namespace bascule {
namespace {

bool is_floating(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool same_elements(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && std::ranges::equal(a.shape, b.shape) &&
         std::ranges::equal(a.strides, b.strides);
}

// What a view must be before anything reads through it.
absl::Status check_view(const TensorView& view) {
  for (const std::int64_t size : view.shape)
    if (size < 0) return invalid_argument("tensor ", to_string(view), " has a negative dimension");
  if (view.data == nullptr && byte_count(view.dtype, view.shape) > 0)
    return invalid_argument("tensor ", to_string(view), " has no data");
  if (!view.strides.empty() && view.strides.size() != view.shape.size())
    return invalid_argument("tensor ", to_string(view), " has ", view.strides.size(), " strides for ",
                            view.shape.size(), " dimensions");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Registration> Registration::make(std::unique_ptr<TensorSource> source, std::optional<DType> wire_dtype) {
  if (!source) return invalid_argument("register_model: no tensors were given");
  Registration made;
  made.source_ = std::move(source);
  BASCULE_ASSIGN(const std::span<const TensorView> views, made.source_->views());
  if (views.empty()) return invalid_argument("register_model: the model has no tensors");
  std::multimap<const std::byte*, std::size_t> by_address;  // to find storages that stand under two names
  std::vector<TensorSpec> specs;
  std::vector<std::pair<std::string, std::string>> tied;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views[i];
    BASCULE_TRY(check_view(view));
    const std::uint64_t bytes = byte_count(view.dtype, view.shape);
    Known known{.spec = {std::string(view.name), view.dtype, {view.shape.begin(), view.shape.end()}},
                .strides = {view.strides.begin(), view.strides.end()},
                .tied_to = std::nullopt};
    if (bytes > 0) {
      const auto [first, last] = by_address.equal_range(view.data);
      for (auto candidate = first; candidate != last && !known.tied_to; ++candidate)
        if (same_elements(views[candidate->second], view)) known.tied_to = candidate->second;
    }
    if (known.tied_to) {
      tied.emplace_back(known.spec.name, views[*known.tied_to].name);
    } else {
      TensorSpec spec = known.spec;
      if (wire_dtype && is_floating(spec.dtype)) spec.dtype = *wire_dtype;
      specs.push_back(std::move(spec));
      if (bytes > 0) by_address.emplace(view.data, i);
    }
    made.known_.push_back(std::move(known));
  }
  BASCULE_ASSIGN(made.layout_, Layout::arrange(std::move(specs), std::move(tied)));
  BASCULE_ASSIGN(made.plan_, Plan::gather(made.layout_, views));
  made.addresses_.resize(views.size());
  return made;
}

absl::Status Registration::refresh() {
  BASCULE_ASSIGN(const std::span<const TensorView> views, source_->views());
  if (views.size() != known_.size())
    return invalid_argument("the model has ", views.size(), " tensors, registered were ", known_.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views[i];
    const Known& known = known_[i];
    if (view.name != known.spec.name || view.dtype != known.spec.dtype ||
        !std::ranges::equal(view.shape, known.spec.shape))
      return invalid_argument("tensor ", to_string(view), " was registered as ", to_string(known.spec),
                              "; its name, type and shape must stay (the storage may move)");
    BASCULE_TRY(check_view(view));
    if (known.tied_to && !same_elements(views[*known.tied_to], view))
      return invalid_argument("tensor ", known.spec.name, " was registered as tied to ",
                              known_[*known.tied_to].spec.name, " and is not any more");
    addresses_[i] = view.data;
  }
  if (!strides_changed(views)) return absl::OkStatus();
  BASCULE_ASSIGN(plan_, Plan::gather(layout_, views));
  for (std::size_t i = 0; i < views.size(); ++i)
    known_[i].strides.assign(views[i].strides.begin(), views[i].strides.end());
  return absl::OkStatus();
}

bool Registration::strides_changed(std::span<const TensorView> views) const {
  for (std::size_t i = 0; i < views.size(); ++i)
    if (!std::ranges::equal(views[i].strides, known_[i].strides)) return true;
  return false;
}

}  // namespace bascule
