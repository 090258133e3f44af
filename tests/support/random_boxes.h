// Divides a tensor into boxes at random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <bascule/transport/cut.h>

namespace bascule::test {

// Appends boxes that cover [offset, offset + shape) exactly: cut in two up to `depth` times, each box in one of
// `regions` regions. Every box has elements if `shape` has.
inline void split_at_random(std::mt19937_64& random, std::vector<std::int64_t> offset, std::vector<std::int64_t> shape,
                            int depth, std::uint32_t regions, std::vector<CutBox>& boxes) {
  const std::size_t d = shape.empty() ? 0 : random() % shape.size();
  if (depth == 0 || shape.empty() || shape[d] < 2) {
    boxes.push_back({.region = static_cast<std::uint32_t>(random() % regions),
                     .offset = std::move(offset),
                     .shape = std::move(shape)});
    return;
  }
  const std::int64_t first = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape[d] - 1));
  std::vector<std::int64_t> head = shape, tail = shape, middle = offset;
  head[d] = first;
  tail[d] -= first;
  middle[d] += first;
  split_at_random(random, std::move(offset), std::move(head), depth - 1, regions, boxes);
  split_at_random(random, std::move(middle), std::move(tail), depth - 1, regions, boxes);
}

// The boxes of torch.chunk(tensor, ranks, dim): one per rank that gets elements, in the region of its rank.
inline std::vector<CutBox> chunks(const std::vector<std::int64_t>& shape, std::size_t dim, std::uint32_t ranks) {
  std::vector<CutBox> boxes;
  const std::int64_t size = (shape[dim] + ranks - 1) / ranks;
  for (std::int64_t r = 0; r < ranks && r * size < shape[dim]; ++r) {
    CutBox box{
        .region = static_cast<std::uint32_t>(r), .offset = std::vector<std::int64_t>(shape.size(), 0), .shape = shape};
    box.offset[dim] = r * size;
    box.shape[dim] = std::min(size, shape[dim] - r * size);
    boxes.push_back(std::move(box));
  }
  return boxes;
}

}  // namespace bascule::test
