#include "transport/tensor.h"

#include "transport/text.h"

namespace bascule {

std::uint64_t element_count(std::span<const std::int64_t> shape) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
  return count;
}

std::uint64_t byte_count(DType dtype, std::span<const std::int64_t> shape) {
  return element_count(shape) * size_of(dtype);
}

std::string to_string(const TensorSpec& spec) {
  std::string text = cat(spec.name, " ", name_of(spec.dtype), " [");
  for (std::size_t i = 0; i < spec.shape.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", spec.shape[i]);
  return text + "]";
}

std::string to_string(const TensorView& view) {
  return to_string(TensorSpec{std::string(view.name), view.dtype, {view.shape.begin(), view.shape.end()}});
}

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

}  // namespace bascule
