// What a benchmark's tensors contain: numbers computed from seed, generation and the tensor's name. They are new for
// each version and never zero, and the workers check every byte. Making and checking a gigabyte takes a fraction of a
// second.
//
// Element i of a tensor is made from word(i) = hash(seed, generation, name) + i * 0x9E3779B1 (mod 2^32). An F32 takes
// its sign and its low 24 bits from the word; a BF16 takes its sign and its low 8 bits from the word's upper half. The
// other bits are fixed, so every magnitude is between 1/2 and 2. If the slot's type differs from the trainer's, the
// reader expects that number, rounded.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/bench/gpu.h>
#include <bascule/transport/tensor.h>

namespace bascule::bench {

class Content {
 public:
  Content(std::uint64_t seed, std::uint64_t generation) : seed_(seed), generation_(generation) {}

  // Writes elements [begin, begin + count) of the tensor `name`, whose type in the trainer is `dtype` (F32 or BF16).
  void write(std::string_view name, DType dtype, std::uint64_t begin, std::uint64_t count, std::byte* to) const;

  // Returns all elements of the tensor `name`, for a GPU to write or compare.
  Elements elements(std::string_view name, std::uint64_t count, DType trainer, DType memory) const {
    return {.first_word = first_word(name), .count = count, .trainer = trainer, .memory = memory};
  }

  // Returns OK if a worker's `tensors` all hold this content and are `count` tensors of `bytes` bytes in all.
  // `trainer_dtype` is the type of every tensor in the trainer; `gpu` has the tensors, or is null. DATA_LOSS names a
  // wrong element.
  absl::Status check(std::span<const TensorView> tensors, DType trainer_dtype, std::size_t count, std::uint64_t bytes,
                     Gpu* gpu = nullptr) const;

 private:
  absl::Status check_on_host(const TensorView& tensor, DType trainer_dtype) const;
  absl::Status check_on(Gpu& gpu, std::span<const TensorView> tensors, DType trainer_dtype) const;
  std::uint32_t first_word(std::string_view name) const;
  std::uint64_t seed_, generation_;
};

}  // namespace bascule::bench
