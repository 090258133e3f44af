#include <bascule/bench/gpu_kernels.h>

#include <algorithm>

#include <bascule/bench/content_formula.h>

namespace bascule::bench {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kMostBlocks = 132 * 16;

unsigned blocks_for(std::uint64_t count) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>((count + kThreads - 1) / kThreads, 1, kMostBlocks));
}

template <typename Make>
using Made = decltype(Make{}(0u));

__device__ std::uint64_t first_number() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::uint64_t numbers_apart() { return std::uint64_t{gridDim.x} * blockDim.x; }

template <typename Make>
__global__ void write_elements(std::uint32_t first, std::uint64_t count, Made<Make>* to) {
  for (std::uint64_t i = first_number(); i < count; i += numbers_apart())
    to[i] = Make{}(first + static_cast<std::uint32_t>(i) * kStride);
}

template <typename Make>
__global__ void compare_elements(std::uint32_t first, std::uint64_t count, const Made<Make>* with,
                                 unsigned long long* wrong) {
  for (std::uint64_t i = first_number(); i < count; i += numbers_apart())
    if (with[i] != Make{}(first + static_cast<std::uint32_t>(i) * kStride)) atomicMin(wrong, i);
}

__global__ void read_words(const uint4* data, std::uint64_t words, unsigned* sink) {
  unsigned sum = 0;
  for (std::uint64_t i = first_number(); i < words; i += numbers_apart()) {
    const uint4 word = data[i];
    sum += word.x ^ word.y ^ word.z ^ word.w;
  }
  if (sum == 0xdeadbeef) *sink = sum;  // so that nothing is optimised away
}

}  // namespace

void launch_write(std::uint32_t first_word, std::uint64_t count, DType trainer, DType memory, std::byte* to) {
  with_element(trainer, memory, [&](auto make) {
    using Make = decltype(make);
    write_elements<Make><<<blocks_for(count), kThreads>>>(first_word, count, reinterpret_cast<Made<Make>*>(to));
  });
}

void launch_compare(std::uint32_t first_word, std::uint64_t count, DType trainer, DType memory, const std::byte* with,
                    unsigned long long* wrong) {
  with_element(trainer, memory, [&](auto make) {
    using Make = decltype(make);
    compare_elements<Make>
        <<<blocks_for(count), kThreads>>>(first_word, count, reinterpret_cast<const Made<Make>*>(with), wrong);
  });
}

void launch_read(const std::byte* data, std::uint64_t bytes, unsigned* sink) {
  read_words<<<blocks_for(bytes / 16), kThreads>>>(reinterpret_cast<const uint4*>(data), bytes / 16, sink);
}

}  // namespace bascule::bench
