// Random layouts for the tests of pack and unpack, on the host and on devices, and all pairs of types with a cast.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "boxes.h"
#include "layouts.h"

namespace bascule::inline v0::kernels {

inline constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

// A copy, and each cast.
inline const std::vector<std::pair<DType, DType>> kCasts = [] {
  std::vector<std::pair<DType, DType>> all = {{DType::kBF16, DType::kBF16}};
  for (const DType from : kFloats)
    for (const DType to : kFloats)
      if (from != to) all.emplace_back(from, to);
  return all;
}();

// Tensors of all kinds: runs, scalars, empty ones, permuted, with gaps, reversed, at any alignment.
inline Tensors random_tensors(std::uint64_t seed, std::size_t count, std::int64_t most_elements) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::uint64_t below) { return random() % below; };
  Tensors tensors;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_cast = pick(2) == 0;
    const DType from = is_cast ? kFloats[pick(4)] : static_cast<DType>(pick(kDTypes.size()));
    const DType to = is_cast ? kFloats[pick(4)] : from;
    std::vector<std::int64_t> shape;
    std::int64_t budget = most_elements >> pick(12);
    for (std::size_t d = pick(5); d > 0; --d) {
      shape.push_back(static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(std::max<std::int64_t>(budget, 1)))) +
                      1);
      budget /= shape.back();
    }
    if (!shape.empty() && pick(10) == 0) shape[pick(shape.size())] = 0;
    std::vector<std::size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    const bool is_plain = pick(2) == 0;
    if (!is_plain) std::shuffle(order.begin(), order.end(), random);
    const auto gap = is_plain ? 0 : static_cast<std::int64_t>(pick(3));
    tensors.add(from, to, shape, order, gap, !is_plain && pick(2) == 0, pick(2) * pick(33), random);
  }
  return tensors;
}

// Tensors of all kinds, whole, cut, read several times or not at all, at any alignment, into targets of any strides.
inline Boxes random_boxes(std::uint64_t seed, std::size_t count, std::int64_t most_elements) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::uint64_t below) { return random() % below; };
  Boxes boxes;
  for (std::size_t i = 0; i < count; ++i) {
    if (pick(3) == 0) boxes.skip(pick(20), random);
    const bool is_cast = pick(2) == 0;
    const DType from = is_cast ? kFloats[pick(4)] : static_cast<DType>(pick(kDTypes.size()));
    std::vector<std::int64_t> shape;
    std::int64_t budget = most_elements >> pick(12);
    for (std::size_t d = pick(5); d > 0; --d) {
      shape.push_back(static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(std::max<std::int64_t>(budget, 1)))) +
                      1);
      budget /= shape.back();
    }
    const Boxes::InSlot tensor = boxes.append(from, shape, random);
    for (std::size_t reads = pick(3); reads > 0; --reads) {
      std::vector<std::int64_t> begin(shape.size(), 0), extent = shape;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (pick(2) == 0) continue;
        begin[d] = static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(shape[d])));
        extent[d] = static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(shape[d] - begin[d] + 1)));
      }
      std::vector<std::size_t> order(shape.size());
      std::iota(order.begin(), order.end(), 0);
      if (pick(3) == 0) std::shuffle(order.begin(), order.end(), random);
      boxes.read(tensor, begin, extent, is_cast ? kFloats[pick(4)] : from, order,
                 static_cast<std::int64_t>(pick(2) * pick(3)), pick(2) * pick(33));
    }
  }
  boxes.sort();
  return boxes;
}

}  // namespace bascule::inline v0::kernels
