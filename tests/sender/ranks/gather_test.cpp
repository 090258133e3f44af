// Whatever boxes the ranks hold, engines see what a gather would give.
#include <algorithm>
#include <random>

#include "sender/ranks/ranks_fixture.h"

namespace bascule::test {
namespace {

class ManyRanks : public RanksFixture {};
TEST_F(ManyRanks, SendManyTensors) {
  constexpr std::size_t kRanks = 16, kTensors = 400;
  std::vector<TensorSpec> specs;
  for (std::size_t t = 0; t < kTensors; ++t) specs.push_back({cat("t", t), DType::kF32, {33, 5}});
  make_ranks(kRanks, specs);
  for (std::size_t t = 0; t < kTensors; ++t)
    for (std::int64_t rank = 0; rank < std::int64_t{kRanks}; ++rank) {  // some shards are empty
      const std::int64_t begin = std::min<std::int64_t>(33, 3 * rank), end = std::min<std::int64_t>(33, begin + 3);
      boxes_[static_cast<std::size_t>(rank)].add(t, {begin, 0}, {end - begin, 5});
    }
  fill(1);
  start_well("?digest=always");
  for (const auto& report : send(1)) ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

TEST_F(ManyRanks, SendMoreThanAMillionRowsCutByColumns) {
  constexpr std::int64_t kRows = (std::int64_t{1} << 20) + 100;
  make_ranks(2, {{"w", DType::kF32, {kRows, 2}}});
  for (std::int64_t rank = 0; rank < 2; ++rank) boxes_[static_cast<std::size_t>(rank)].add(0, {0, rank}, {kRows, 1});
  fill(1);
  start_well();
  for (const auto& report : send(1)) ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

// Cuts a dimension into `parts`, some of them empty.
Shape cuts(std::int64_t size, int parts, std::mt19937& random) {
  Shape at{0, size};
  for (int i = 1; i < parts; ++i) at.push_back(std::uniform_int_distribution<std::int64_t>(0, size)(random));
  std::ranges::sort(at);
  return at;
}

class RandomRanks : public RanksFixture, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomRanks, testing::Range(0, 80));
TEST_P(RandomRanks, EqualAGather) {
  use_scheme(GetParam() % 2 == 0 ? "shm" : "regions");
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  const auto ranks = static_cast<std::size_t>(pick(1, 5));
  std::vector<TensorSpec> specs;
  for (std::int64_t t = 0, count = pick(1, 6); t < count; ++t) {
    Shape shape;
    for (std::int64_t d = 0, dimensions = pick(0, 3); d < dimensions; ++d) shape.push_back(pick(1, d == 0 ? 300 : 40));
    specs.push_back({cat("t", t), DType::kF32, shape});
  }
  make_ranks(ranks, specs);
  for (std::size_t t = 0; t < specs.size(); ++t) {  // a grid of boxes, dealt out with replicas
    std::vector<Shape> at;
    for (const std::int64_t size : specs[t].shape) at.push_back(cuts(size, static_cast<int>(pick(1, 4)), random));
    Shape cell(at.size(), 0);
    while (true) {
      Shape offset, shape;
      for (std::size_t d = 0; d < at.size(); ++d) {
        offset.push_back(at[d][static_cast<std::size_t>(cell[d])]);
        shape.push_back(at[d][static_cast<std::size_t>(cell[d]) + 1] - offset.back());
      }
      const auto owner = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(ranks) - 1));
      for (std::size_t rank = 0; rank < ranks; ++rank)
        if (rank == owner || pick(0, 5) == 0) boxes_[rank].add(t, offset, shape);
      std::size_t d = at.size();
      while (d-- > 0) {
        if (++cell[d] + 1 < static_cast<std::int64_t>(at[d].size())) break;
        cell[d] = 0;
      }
      if (d == std::size_t(-1)) break;
    }
  }
  start_well("?digest=always");
  for (int version = 1; version < 4; ++version) {
    fill(version);
    for (const auto& report : send(static_cast<std::uint64_t>(version))) ASSERT_THAT(report, IsOk());
    ASSERT_TRUE(serves(version));
  }
}

}  // namespace
}  // namespace bascule::test
