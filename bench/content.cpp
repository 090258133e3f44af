#include "bench/content.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/text.h"

namespace bascule::bench {
namespace {

constexpr std::uint32_t kStride = 0x9E3779B1;  // odd: 2^32 elements before a word comes again

constexpr std::uint32_t f32_of(std::uint32_t word) { return (word & 0x80ffffff) | 0x3f000000; }
constexpr std::uint16_t bf16_of(std::uint32_t word) {
  return static_cast<std::uint16_t>(((word >> 16) & 0x80ff) | 0x3f00);
}
// To nearest, ties to even; there are no NaNs here.
constexpr std::uint16_t bf16_of_f32(std::uint32_t bits) {
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <typename Element, typename Make>
void write_elements(std::uint32_t word, std::uint64_t count, std::byte* to, Make make) {
  // The target may lie on any byte; the loop vectorises all the same.
  for (std::uint64_t i = 0; i < count; ++i) {
    const Element element = make(word + static_cast<std::uint32_t>(i) * kStride);
    std::memcpy(to + i * sizeof(Element), &element, sizeof(Element));
  }
}

void write_as(DType trainer, DType slot, std::uint32_t word, std::uint64_t count, std::byte* to) {
  if (slot == DType::kF32) {
    write_elements<std::uint32_t>(word, count, to, f32_of);
  } else if (trainer == DType::kF32) {
    write_elements<std::uint16_t>(word, count, to, [](std::uint32_t w) { return bf16_of_f32(f32_of(w)); });
  } else {
    write_elements<std::uint16_t>(word, count, to, bf16_of);
  }
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

absl::Status Content::check(std::span<const TensorView> tensors, DType trainer_dtype, std::size_t count,
                            std::uint64_t bytes) const {
  std::uint64_t found_bytes = 0;
  constexpr std::uint64_t kBlock = 4096;  // elements: both sides of the comparison stay in the first cache
  alignas(64) std::array<std::byte, 4 * kBlock> expected;
  for (const TensorView& tensor : tensors) {
    if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16)
      return absl::DataLossError(cat("tensor ", tensor.name, " is ", name_of(tensor.dtype), ", expected F32 or BF16"));
    const std::uint64_t width = size_of(tensor.dtype), elements = element_count(tensor.shape);
    const std::uint32_t first = first_word(tensor.name);
    for (std::uint64_t begin = 0; begin < elements; begin += kBlock) {
      const std::uint64_t block = std::min(kBlock, elements - begin);
      write_as(trainer_dtype, tensor.dtype, first + static_cast<std::uint32_t>(begin) * kStride, block,
               expected.data());
      if (std::memcmp(expected.data(), tensor.data + begin * width, block * width) != 0)
        return absl::DataLossError(cat("generation ", generation_, ": tensor ", tensor.name,
                                       " is wrong between elements ", begin, " and ", begin + block));
    }
    found_bytes += elements * width;
  }
  if (tensors.size() != count || found_bytes != bytes)
    return absl::DataLossError(
        cat("expected ", count, " tensors of ", bytes, " bytes, found ", tensors.size(), " of ", found_bytes));
  return absl::OkStatus();
}

}  // namespace bascule::bench
