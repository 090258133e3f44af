#include <bascule/transport/tensor.h>

#include <cstring>

#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

std::uint64_t element_count(std::span<const std::int64_t> shape) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
  return count;
}

std::uint64_t byte_count(DType dtype, std::span<const std::int64_t> shape) {
  return element_count(shape) * size_of(dtype);
}

absl::StatusOr<std::uint64_t> checked_byte_count(std::string_view name, DType dtype,
                                                 std::span<const std::int64_t> shape, std::string_view kind) {
  const auto wrong = [&](std::string_view what) {
    return invalid_argument(kind, " ", to_string(TensorSpec{std::string(name), dtype, {shape.begin(), shape.end()}}),
                            what);
  };
  std::uint64_t bytes = size_of(dtype);
  bool empty = false, huge = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return wrong(" has a negative dimension");
    empty |= size == 0;
    huge |= size > 0 && bytes > kMostModelBytes / static_cast<std::uint64_t>(size);
    if (size > 0 && !huge) bytes *= static_cast<std::uint64_t>(size);
  }
  if (huge)
    return wrong(empty ? " has no elements, but its dimensions other than 0 multiply to more than 2^62 bytes"
                       : " is larger than 2^62 bytes");
  return empty ? 0 : bytes;
}

absl::Status check_tensor_name(std::string_view name) {
  if (name.empty()) return invalid_argument("a tensor has an empty name; give each a name");
  if (!is_utf8(name)) return invalid_argument("a tensor's name is not UTF-8");
  if (name == "__metadata__")
    return invalid_argument("a tensor is named __metadata__, which safetensors keeps for itself; rename it");
  if (name.size() <= kMostTensorNameBytes) return absl::OkStatus();
  constexpr std::size_t kShown = 64;
  return invalid_argument("a tensor's name has ", name.size(), " bytes, expected ", kMostTensorNameBytes,
                          " at most: \"", shortened(name, kShown), "\"; give it a shorter one");
}

void append_text(const TensorSpec& spec, std::string& to) {
  to.append(spec.name).append(" ").append(name_of(spec.dtype)).append(" [");
  for (std::size_t i = 0; i < spec.shape.size(); ++i) absl::StrAppend(&to, i == 0 ? "" : ", ", spec.shape[i]);
  to += "]";
}

std::string to_string(const TensorSpec& spec) {
  std::string text;
  append_text(spec, text);
  return text;
}

std::string to_string(const TensorView& view) {
  return to_string(TensorSpec{std::string(view.name), view.dtype, {view.shape.begin(), view.shape.end()}});
}

std::vector<TensorView> factors_of(std::span<const TensorView> views) {
  std::vector<TensorView> factors;
  for (const TensorView& view : views)
    if (view.delta != nullptr) factors.insert(factors.end(), {view.delta->b, view.delta->a});
  return factors;
}

std::string place_name(int device) { return device == kHost ? "host memory" : cat("device ", device); }

BorrowedTensors::BorrowedTensors(std::vector<BorrowedTensor> tensors, Stream stream)
    : tensors_(std::move(tensors)), stream_(stream) {
  views_.reserve(tensors_.size());
  deltas_.reserve(tensors_.size());  // views point to them
  for (const BorrowedTensor& tensor : tensors_) {
    views_.push_back({.name = tensor.spec.name,
                      .dtype = tensor.spec.dtype,
                      .shape = tensor.spec.shape,
                      .strides = tensor.strides,
                      .data = static_cast<const std::byte*>(tensor.data),
                      .device = tensor.device,
                      .scale = tensor.scale});
    if (!tensor.delta) continue;
    const auto view_of = [&](const BorrowedLowRank::Factor& factor) {
      return TensorView{.name = tensor.spec.name,
                        .dtype = factor.dtype,
                        .shape = factor.shape,
                        .strides = factor.strides,
                        .data = static_cast<const std::byte*>(factor.data),
                        .device = tensor.device};
    };
    deltas_.push_back({.b = view_of(tensor.delta->b), .a = view_of(tensor.delta->a), .scale = tensor.delta->scale});
    views_.back().delta = &deltas_.back();
  }
}

void BorrowedTensors::move_factors(std::size_t i, const void* b, const void* a) {
  LowRankView& delta = deltas_[static_cast<std::size_t>(views_[i].delta - deltas_.data())];
  delta.b.data = static_cast<const std::byte*>(b);
  delta.a.data = static_cast<const std::byte*>(a);
  ++moves_;
}

void BorrowedTensors::move(std::size_t i, const void* data, std::vector<std::int64_t> strides) {
  move(i, data);
  if (tensors_[i].strides == strides) return;
  tensors_[i].strides = std::move(strides);
  views_[i].strides = tensors_[i].strides;
  ++edition_;
}

absl::StatusOr<std::span<const TensorView>> BorrowedTensors::views() { return std::span<const TensorView>(views_); }

HostTensors::HostTensors(std::vector<std::pair<TensorSpec, const void*>> tensors) {
  specs_.reserve(tensors.size());
  views_.reserve(tensors.size());
  for (std::pair<TensorSpec, const void*>& tensor : tensors) {
    specs_.push_back(std::move(tensor.first));
    views_.push_back({.name = specs_.back().name,
                      .dtype = specs_.back().dtype,
                      .shape = specs_.back().shape,
                      .strides = {},
                      .data = static_cast<const std::byte*>(tensor.second)});
  }
}

absl::StatusOr<std::span<const TensorView>> HostTensors::views() { return std::span<const TensorView>(views_); }

Stream TensorSource::stream() const { return nullptr; }

// NOLINTNEXTLINE(performance-unnecessary-value-param): an override that can move them keeps it
absl::Status TensorSource::move_into(std::span<std::byte* const>, std::shared_ptr<void>) {
  return unimplemented("these tensors cannot be moved into the slot, as slots=1 requires; use slots=2");
}

Parameters::Parameters(int device, std::vector<std::pair<TensorSpec, void**>> tensors,
                       std::shared_ptr<ParameterMemory> memory)
    : memory_(std::move(memory)) {
  specs_.reserve(tensors.size());
  for (std::pair<TensorSpec, void**>& tensor : tensors) {
    specs_.push_back(std::move(tensor.first));
    pointers_.push_back(tensor.second);
    views_.push_back({.name = specs_.back().name,
                      .dtype = specs_.back().dtype,
                      .shape = specs_.back().shape,
                      .strides = {},
                      .data = nullptr,
                      .device = device});
  }
  addresses_.resize(pointers_.size());
}

absl::StatusOr<std::span<const TensorView>> Parameters::views() {
  for (std::size_t i = 0; i < pointers_.size(); ++i) {
    if (addresses_[i] == *pointers_[i]) continue;
    addresses_[i] = *pointers_[i];
    views_[i].data = static_cast<const std::byte*>(addresses_[i]);
    ++moves_;
  }
  return std::span<const TensorView>(views_);
}

absl::Status Parameters::move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) {
  if (!memory_)
    return failed_precondition("slots=1 moves these tensors into the slot: give their source a ParameterMemory");
  std::vector<Move> moves;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::uint64_t bytes = byte_count(specs_[i].dtype, specs_[i].shape);
    if (*pointers_[i] != targets[i] && bytes > 0)
      moves.push_back({.to = targets[i], .from = *pointers_[i], .bytes = bytes});
  }
  BASCULE_TRY(move(moves));
  for (std::size_t i = 0; i < targets.size(); ++i) *pointers_[i] = targets[i];
  memory_->memory = std::move(keeps);  // the old memory was read until here
  return absl::OkStatus();
}

absl::Status HostParameters::move(std::span<const Move> moves) {
  for (const Move& move : moves) std::memcpy(move.to, move.from, move.bytes);
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
