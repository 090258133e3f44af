#include <bascule/sender/registration.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <boost/functional/hash.hpp>

#include <bascule/sender/overlap.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

bool is_floating(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Both views have the same shape. The stride of a dimension of one element is ignored. No strides mean C order.
bool same_strides(const TensorView& a, const TensorView& b) {
  if (std::ranges::equal(a.strides, b.strides)) return true;
  std::int64_t c_order = 1;
  for (std::size_t d = a.shape.size(); d-- > 0; c_order *= a.shape[d]) {
    const std::int64_t in_a = a.strides.empty() ? c_order : a.strides[d];
    const std::int64_t in_b = b.strides.empty() ? c_order : b.strides[d];
    if (a.shape[d] > 1 && in_a != in_b) return false;
  }
  return true;
}

bool same_elements(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && std::ranges::equal(a.shape, b.shape) && same_strides(a, b) &&
         a.scale == b.scale && a.delta == b.delta;
}

// Checks a view before anything reads through it.
absl::Status check_view(const TensorView& view) {
  BASCULE_ASSIGN(const std::uint64_t bytes, checked_byte_count(view.name, view.dtype, view.shape));
  if (view.data == nullptr && bytes > 0) return invalid_argument("tensor ", to_string(view), " has no data");
  if (!view.strides.empty() && view.strides.size() != view.shape.size())
    return invalid_argument("tensor ", to_string(view), " has ", view.strides.size(), " strides for ",
                            view.shape.size(), " dimensions");
  if (view.delta == nullptr) return absl::OkStatus();
  BASCULE_TRY(annotate(check_view(view.delta->b), "factor b"));
  return annotate(check_view(view.delta->a), "factor a");
}

bool has_elements(const TensorView& view) { return byte_count(view.dtype, view.shape) > 0; }

absl::StatusOr<SharedLayout> shared(absl::StatusOr<Layout> layout) {
  BASCULE_TRY(layout.status());
  return std::make_shared<const Layout>(*std::move(layout));
}

// Returns the common device of all `views`; empty tensors do not count.
absl::StatusOr<int> device_of(std::span<const TensorView> views) {
  const TensorView* first = nullptr;
  for (const TensorView& view : views) {
    if (!has_elements(view)) continue;
    if (first == nullptr) first = &view;
    if (view.device != first->device)
      return invalid_argument("tensor ", first->name, " lies in ", place_name(first->device), " and tensor ", view.name,
                              " in ", place_name(view.device), "; the tensors of one model must lie in one place");
  }
  return first == nullptr ? kHost : first->device;
}

}  // namespace

absl::StatusOr<Registration> Registration::make(std::unique_ptr<TensorSource> source, std::optional<DType> wire_dtype,
                                                std::string description) {
  if (!source) return invalid_argument("register_model: no tensors were given");
  Registration made;
  made.source_ = std::move(source);
  BASCULE_ASSIGN(const std::span<const TensorView> views, made.source_->views());
  if (views.empty()) return invalid_argument("register_model: the model has no tensors");
  BASCULE_ASSIGN(made.device_, device_of(views));
  // To find storages with two names: by address and size, the last view that has both, and for each view the one before
  // it. Many views may begin at one address, for example in one buffer.
  using Bytes = std::pair<const std::byte*, std::uint64_t>;
  std::unordered_map<Bytes, std::size_t, boost::hash<Bytes>> last_with;
  constexpr auto kNone = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> before(views.size(), kNone);
  last_with.reserve(views.size());
  std::vector<TensorSpec> specs;
  specs.reserve(views.size());
  made.known_.reserve(views.size());
  std::vector<std::pair<std::string, std::string>> tied;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views[i];
    BASCULE_TRY(check_view(view));
    const std::uint64_t bytes = byte_count(view.dtype, view.shape);
    Known known{.spec = {std::string(view.name), view.dtype, {view.shape.begin(), view.shape.end()}},
                .tied_to = std::nullopt};
    std::size_t* const last =
        bytes > 0 ? &last_with.try_emplace(Bytes(view.data, bytes), kNone).first->second : nullptr;
    for (std::size_t other = last != nullptr ? *last : kNone; other != kNone && !known.tied_to; other = before[other])
      if (same_elements(views[other], view)) known.tied_to = other;
    if (known.tied_to) {
      tied.emplace_back(known.spec.name, views[*known.tied_to].name);
    } else {
      TensorSpec spec = known.spec;
      if (wire_dtype && is_floating(spec.dtype)) spec.dtype = *wire_dtype;
      specs.push_back(std::move(spec));
      if (last != nullptr) before[i] = std::exchange(*last, i);
    }
    if (known.tied_to) made.ties_.emplace_back(i, *known.tied_to);
    made.known_.push_back(std::move(known));
  }
  BASCULE_ASSIGN(made.layout_, shared(Layout::arrange(std::move(specs), std::move(tied), {}, std::move(description))));
  BASCULE_ASSIGN(made.plan_, Plan::gather(made.layout(), views));
  made.planned_ = ViewTable(views);
  made.addresses_.resize(views.size());
  return made;
}

absl::StatusOr<Registration> Registration::of_specs(std::vector<TensorSpec> specs, int device,
                                                    std::optional<DType> wire_dtype, std::string description,
                                                    const std::optional<Division>& division) {
  if (specs.empty()) return invalid_argument("register_model: the model has no tensors");
  Registration made;
  made.device_ = device;
  for (TensorSpec& spec : specs) {
    BASCULE_TRY(checked_byte_count(spec.name, spec.dtype, spec.shape).status());
    made.known_.push_back({.spec = spec, .tied_to = std::nullopt});
    if (wire_dtype && is_floating(spec.dtype)) spec.dtype = *wire_dtype;
  }
  BASCULE_ASSIGN(made.layout_, shared(division ? Layout::divide(std::move(specs), {}, *division, std::move(description))
                                               : Layout::arrange(std::move(specs), {}, {}, std::move(description))));
  return made;
}

Registration Registration::of_layout(Layout layout, int device) {
  Registration made;
  made.device_ = device;
  for (const Placement& tensor : layout.tensors())
    made.known_.push_back({.spec = tensor.spec, .tied_to = std::nullopt});
  made.layout_ = std::make_shared<const Layout>(std::move(layout));
  return made;
}

absl::Status Registration::fuse(std::span<const std::vector<std::string>> requests) {
  if (requests.empty() || layout().division()) return absl::OkStatus();  // boxes do not lie side by side
  std::vector<TensorSpec> specs;
  std::vector<std::pair<std::string, std::string>> tied;
  for (const Known& known : known_) {
    if (known.tied_to) {
      tied.emplace_back(known.spec.name, known_[*known.tied_to].spec.name);
    } else {
      specs.push_back(layout().find(known.spec.name)->spec);  // its type is the wire's
    }
  }
  BASCULE_ASSIGN(layout_, shared(Layout::arrange(std::move(specs), std::move(tied), requests, layout().description())));
  plan_is_stale_ = true;
  return absl::OkStatus();
}

absl::Status Registration::refresh() {
  if (!source_)
    return failed_precondition(
        "the model was registered from specs alone: give the weights to send, or fill a loan and publish it");
  BASCULE_ASSIGN(const std::span<const TensorView> views, source_->views());
  if (views.size() != known_.size())
    return invalid_argument("the model has ", views.size(), " tensors, registered were ", known_.size());
  views_ = views;
  const std::uint64_t edition = source_->edition(), moves = source_->moves();
  const bool as_before = edition != 0 && edition == edition_ && !plan_is_stale_;
  if (as_before && moves != 0 && moves == moves_) return absl::OkStatus();
  ++read_number_;
  bool as_planned = !plan_is_stale_;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i].data == nullptr || !(as_before || planned_.same(i, views[i]))) {
      BASCULE_TRY(check(views[i], known_[i]));
      as_planned = as_planned && planned_.same(i, views[i]);
    }
    if (views[i].device != device_ && has_elements(views[i]))
      return invalid_argument("tensor ", views[i].name, " lies in ", place_name(views[i].device),
                              "; it was registered in ", place_name(device_), ", where it must stay");
    addresses_[i] = views[i].data;
  }
  for (const auto& [tied, owner] : ties_)
    if (!same_elements(views[owner], views[tied]))
      return invalid_argument("tensor ", known_[tied].spec.name, " was registered as tied to ", known_[owner].spec.name,
                              " and no longer is");
  if (!as_planned) {
    BASCULE_ASSIGN(plan_, Plan::gather(layout(), views));
    plan_number_ = ++last_plan_number_;
    planned_ = ViewTable(views);
    plan_is_stale_ = false;
  }
  if (computes()) {
    factors_ = factors_of(views);
    addresses_.resize(views.size());
    for (const TensorView& factor : factors_) addresses_.push_back(factor.data);
  }
  edition_ = edition;
  moves_ = moves;
  return absl::OkStatus();
}

absl::Status Registration::check(const TensorView& view, const Known& known) const {
  if (view.name != known.spec.name || view.dtype != known.spec.dtype ||
      !std::ranges::equal(view.shape, known.spec.shape))
    return invalid_argument("tensor ", to_string(view), " was registered as ", to_string(known.spec),
                            "; its name, type and shape must stay (the storage may move)");
  return check_view(view);
}

absl::StatusOr<Packing> Registration::packing(TensorSource* weights) {
  if (weights != nullptr) return packing_of(*weights);
  BASCULE_TRY(refresh());
  return Packing{.segments = plan_.segments(),
                 .arithmetic = plan_.arithmetic(),
                 .addresses = addresses_,
                 .views = views_,
                 .factors = factors_,
                 .slot_bytes = layout().bytes(),
                 .registered = true,
                 .plan_number = plan_number_,
                 .read_number = read_number_,
                 .in_pieces = false,
                 .stream = source_->stream()};
}

absl::StatusOr<Packing> Registration::packing_of(TensorSource& weights) {
  BASCULE_ASSIGN(const std::span<const TensorView> views, weights.views());
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& view : views) {
    BASCULE_TRY(check_view(view));
    if (!by_name.emplace(view.name, &view).second)
      return invalid_argument("tensor ", view.name, " is given twice among the weights");
  }
  std::size_t used = 0;
  for (const Known& known : known_) {
    const auto found = by_name.find(known.spec.name);
    if (found == by_name.end() && known.tied_to) continue;
    if (found == by_name.end())
      return invalid_argument("tensor ", to_string(known.spec), " was registered and is not among the weights");
    const TensorView& view = *found->second;
    if (view.dtype != known.spec.dtype || !std::ranges::equal(view.shape, known.spec.shape))
      return invalid_argument("tensor ", to_string(view), " was registered as ", to_string(known.spec));
    if (known.tied_to) {
      const auto owner = by_name.find(known_[*known.tied_to].spec.name);
      if (owner != by_name.end() && !same_elements(*owner->second, view))
        return invalid_argument("tensor ", known.spec.name, " was registered as tied to ", owner->first,
                                " and is not among these weights");
    }
    ++used;
  }
  if (used < views.size())
    for (const TensorView& view : views)
      if (std::ranges::find(known_, view.name, [](const Known& known) { return std::string_view(known.spec.name); }) ==
          known_.end())
        return invalid_argument("tensor ", to_string(view), " is among the weights and was not registered");
  BASCULE_ASSIGN(const int device, device_of(views));
  if (device != device_)
    return invalid_argument("these weights lie in ", place_name(device), "; the registered ones lie in ",
                            place_name(device_), ", and a sender sends from one place");
  BASCULE_ASSIGN(other_plan_, Plan::gather(layout(), views));
  other_addresses_.clear();
  for (const TensorView& view : views) other_addresses_.push_back(view.data);
  other_factors_ = factors_of(views);
  for (const TensorView& factor : other_factors_) other_addresses_.push_back(factor.data);
  return Packing{.segments = other_plan_.segments(),
                 .arithmetic = other_plan_.arithmetic(),
                 .addresses = other_addresses_,
                 .views = views,
                 .factors = other_factors_,
                 .slot_bytes = layout().bytes(),
                 .registered = false,
                 .plan_number = ++last_plan_number_,
                 .read_number = ++read_number_,
                 .in_pieces = false,
                 .stream = weights.stream()};
}

bool Registration::casts() const {
  return std::ranges::any_of(known_, [this](const Known& known) {
    const Placement* const placed = layout().find(known.spec.name);
    return placed != nullptr && placed->spec.dtype != known.spec.dtype;
  });
}

std::vector<Placement> Registration::may_overflow(const Packing& packing) const {
  std::set<std::string_view> computed;
  if (!packing.arithmetic.empty())
    for (const TensorView& view : packing.views)
      if (view.scale != 1 || view.delta != nullptr) computed.insert(view.name);
  std::vector<Placement> found;
  for (const Known& known : known_)
    if (const Placement* const placed = layout().find(known.spec.name);
        !known.tied_to && placed != nullptr && placed->spec.dtype == DType::kF16 &&
        (known.spec.dtype != DType::kF16 || computed.contains(known.spec.name)))
      found.push_back(*placed);
  return found;
}

absl::Status Registration::check_apart() {
  BASCULE_ASSIGN(const std::span<const TensorView> views, source_->views());
  std::vector<TensorView> untied;
  for (std::size_t i = 0; i < std::min(known_.size(), views.size()); ++i)
    if (!known_[i].tied_to) untied.push_back(views[i]);
  return bascule::check_apart(untied);
}

absl::Status Registration::move_into(const std::map<std::string_view, std::byte*>& places,
                                     std::shared_ptr<void> keeps) {
  std::vector<std::byte*> targets;
  for (const Known& known : known_) targets.push_back(places.at(known.spec.name));
  BASCULE_TRY(source_->move_into(targets, std::move(keeps)));
  places_.assign(targets.begin(), targets.end());
  return check_moved();
}

absl::Status Registration::check_moved() {
  BASCULE_TRY(refresh());
  for (std::size_t i = 0; i < known_.size(); ++i)
    if (byte_count(known_[i].spec.dtype, known_[i].spec.shape) > 0 && addresses_[i] != places_[i])
      return invalid_argument("tensor ", known_[i].spec.name, " no longer lies in the slot; with slots=1 the ",
                              "parameters must be changed in place (an optimizer's step does), not replaced");
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
