#include <bascule/bench/content.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <bascule/bench/content_formula.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

void write_as(DType trainer, DType slot, std::uint32_t word, std::uint64_t count, std::byte* to) {
  with_element(trainer, slot, [&](auto make) {
    // The target may be unaligned; the loop vectorises anyway.
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto element = make(word + static_cast<std::uint32_t>(i) * kStride);
      std::memcpy(to + i * sizeof(element), &element, sizeof(element));
    }
  });
}

}  // namespace

std::uint32_t Content::first_word(std::string_view name) const {
  // splitmix64's finisher over the name: neighbouring generations start far apart.
  std::uint64_t hash = seed_ * 0x9e3779b97f4a7c15 + generation_;
  const auto mix = [&hash] {
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  };
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    mix();
  }
  return static_cast<std::uint32_t>(hash);
}

void Content::write(std::string_view name, DType dtype, std::uint64_t begin, std::uint64_t count, std::byte* to) const {
  write_as(dtype, dtype, first_word(name) + static_cast<std::uint32_t>(begin) * kStride, count, to);
}

absl::Status Content::check_on_host(const TensorView& tensor, DType trainer_dtype) const {
  constexpr std::uint64_t kBlock = 4096;  // elements: both sides of the comparison stay in the first cache
  alignas(64) std::array<std::byte, 4 * kBlock> expected;
  const std::uint64_t width = size_of(tensor.dtype), elements = element_count(tensor.shape);
  const std::uint32_t first = first_word(tensor.name);
  for (std::uint64_t begin = 0; begin < elements; begin += kBlock) {
    const std::uint64_t block = std::min(kBlock, elements - begin);
    write_as(trainer_dtype, tensor.dtype, first + static_cast<std::uint32_t>(begin) * kStride, block, expected.data());
    if (std::memcmp(expected.data(), tensor.data + begin * width, block * width) != 0)
      return absl::DataLossError(cat("generation ", generation_, ": tensor ", tensor.name,
                                     " is wrong between elements ", begin, " and ", begin + block));
  }
  return absl::OkStatus();
}

// Checks all tensors at once; if any is wrong, checks them one after the other.
absl::Status Content::check_on(Gpu& gpu, std::span<const TensorView> tensors, DType trainer_dtype) const {
  const auto compare = [&](const TensorView& tensor) {
    return gpu.compare(elements(tensor.name, element_count(tensor.shape), trainer_dtype, tensor.dtype), tensor.data);
  };
  for (const TensorView& tensor : tensors) BASCULE_TRY(compare(tensor));
  BASCULE_ASSIGN(std::optional<std::uint64_t> wrong, gpu.wrong_element());
  if (!wrong) return absl::OkStatus();
  for (const TensorView& tensor : tensors) {
    BASCULE_TRY(compare(tensor));
    BASCULE_ASSIGN(wrong, gpu.wrong_element());
    if (wrong)
      return absl::DataLossError(
          cat("generation ", generation_, ": tensor ", tensor.name, " is wrong at element ", *wrong));
  }
  return absl::DataLossError(cat("generation ", generation_, ": a tensor was wrong when it was first compared"));
}

absl::Status Content::check(std::span<const TensorView> tensors, DType trainer_dtype, std::size_t count,
                            std::uint64_t bytes, Gpu* gpu) const {
  std::uint64_t found_bytes = 0;
  for (const TensorView& tensor : tensors) {
    if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16)
      return absl::DataLossError(cat("tensor ", tensor.name, " is ", name_of(tensor.dtype), ", expected F32 or BF16"));
    const int device = gpu == nullptr ? kHost : gpu->device();
    if (tensor.device != device)
      return absl::DataLossError(
          cat("tensor ", tensor.name, " lies in ", place_name(tensor.device), ", expected ", place_name(device)));
    if (gpu == nullptr) BASCULE_TRY(check_on_host(tensor, trainer_dtype));
    found_bytes += byte_count(tensor.dtype, tensor.shape);
  }
  if (gpu != nullptr) BASCULE_TRY(check_on(*gpu, tensors, trainer_dtype));
  if (tensors.size() != count || found_bytes != bytes)
    return absl::DataLossError(
        cat("expected ", count, " tensors of ", bytes, " bytes, found ", tensors.size(), " of ", found_bytes));
  return absl::OkStatus();
}

}  // namespace bascule::bench
