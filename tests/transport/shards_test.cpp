// plan_shards, compared with a count of every element.
#include <bascule/transport/shards.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

using Shape = std::vector<std::int64_t>;

// What all ranks state. The numbers of the boxes do not move.
struct Stated {
  std::vector<TensorSpec> specs;
  std::vector<std::vector<ShardBox>> ranks;
  std::deque<Shape> numbers;

  explicit Stated(std::size_t count) : ranks(count) {}
  void add(std::size_t rank, std::uint32_t tensor, Shape offset, Shape shape) {
    const Shape& where = numbers.emplace_back(std::move(offset));
    ranks[rank].push_back({.tensor = tensor, .offset = where, .shape = numbers.emplace_back(std::move(shape))});
  }
  absl::StatusOr<ShardPlan> plan() const { return plan_shards(specs, ranks); }
};

// Calls visit(index) for each element of the box, in row-major order.
template <typename Visit>
void for_each(const Shape& offset, const Shape& shape, Visit visit) {
  if (std::ranges::find(shape, 0) != shape.end()) return;
  Shape index = offset;
  while (true) {
    visit(index);
    std::size_t d = index.size();
    while (d-- > 0) {
      if (++index[d] < offset[d] + shape[d]) break;
      index[d] = offset[d];
    }
    if (d == std::size_t(-1)) return;
  }
}

std::size_t flat(const Shape& index, const Shape& shape) {
  std::size_t at = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) at = at * static_cast<std::size_t>(shape[d]) + std::size_t(index[d]);
  return at;
}

Shape copy_of(std::span<const std::int64_t> numbers) { return {numbers.begin(), numbers.end()}; }

std::string text_of(const Shape& index) {
  std::string text = "[";
  for (std::size_t d = 0; d < index.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(index[d]);
  return text + "]";
}

// How often the boxes cover each element; equal boxes count once if `distinct`.
std::vector<int> coverage(const TensorSpec& spec, const std::vector<const ShardBox*>& boxes, bool distinct) {
  std::vector<int> counts(element_count(spec.shape));
  std::set<std::pair<Shape, Shape>> seen;
  for (const ShardBox* box : boxes) {
    const Shape offset = copy_of(box->offset), shape = copy_of(box->shape);
    if (distinct && !seen.emplace(offset, shape).second) continue;
    for_each(offset, shape, [&](const Shape& index) { ++counts[flat(index, spec.shape)]; });
  }
  return counts;
}

std::vector<const ShardBox*> boxes_of_tensor(const Stated& stated, std::uint32_t tensor) {
  std::vector<const ShardBox*> boxes;
  for (const auto& rank : stated.ranks)
    for (const ShardBox& box : rank)
      if (box.tensor == tensor) boxes.push_back(&box);
  return boxes;
}

void expect_owned_once(const Stated& stated, const ShardPlan& plan) {
  ASSERT_EQ(plan.ranks.size(), stated.ranks.size());
  std::vector<std::vector<const ShardBox*>> owned(stated.specs.size());
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    std::uint64_t bytes = 0;
    std::pair<std::uint32_t, Shape> last;
    for (const std::uint32_t i : plan.ranks[r].boxes) {
      const ShardBox& box = stated.ranks[r].at(i);
      owned[box.tensor].push_back(&box);
      bytes += byte_count(stated.specs[box.tensor].dtype, box.shape);
      const std::pair<std::uint32_t, Shape> place{box.tensor, copy_of(box.offset)};
      EXPECT_LE(last, place);
      last = place;
    }
    EXPECT_EQ(plan.ranks[r].bytes, bytes);
  }
  for (std::uint32_t t = 0; t < owned.size(); ++t)
    EXPECT_TRUE(std::ranges::all_of(coverage(stated.specs[t], owned[t], false), [](int n) { return n == 1; }));
}

// ---- random boxes ----

class Meshes {
 public:
  explicit Meshes(std::uint64_t seed) : random_(seed) {}

  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(last - first + 1)));
  }
  // A tensor that is cut at random, with replicas on random ranks.
  void add_tensor(Stated& stated) {
    TensorSpec spec{.name = "t" + std::to_string(stated.specs.size()), .dtype = DType::kF32, .shape = {}};
    for (std::uint64_t d = pick(4); d > 0; --d) spec.shape.push_back(between(pick(12) == 0 ? 0 : 1, 7));
    stated.specs.push_back(spec);
    split(stated, Shape(spec.shape.size()), spec.shape, pick(4));
  }
  // Makes one box, perhaps, wrong. May leave the boxes right.
  void spoil(Stated& stated) {
    auto& rank = stated.ranks[pick(stated.ranks.size())];
    if (rank.empty()) return;
    const std::size_t i = pick(rank.size());
    Shape offset = copy_of(rank[i].offset), shape = copy_of(rank[i].shape);
    const Shape& whole = stated.specs[rank[i].tensor].shape;
    const std::uint64_t how = pick(4);
    if (how == 0 || shape.empty()) {
      rank.erase(rank.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    const std::size_t d = pick(shape.size());
    if (how == 1 && shape[d] > 1) --shape[d];
    if (how == 2 && offset[d] > 0) --offset[d];
    if (how == 3 && offset[d] + shape[d] < whole[d]) ++shape[d];
    const std::uint32_t tensor = rank[i].tensor;
    rank.erase(rank.begin() + static_cast<std::ptrdiff_t>(i));
    stated.add(static_cast<std::size_t>(&rank - stated.ranks.data()), tensor, offset, shape);
  }

 private:
  void split(Stated& stated, const Shape& offset, const Shape& shape, std::uint64_t depth) {
    if (depth > 0 && !shape.empty()) {
      const std::size_t d = pick(shape.size());
      Shape first = shape, rest = shape, at = offset;
      first[d] = between(0, shape[d]);
      rest[d] -= first[d];
      at[d] += first[d];
      split(stated, offset, first, depth - 1);
      split(stated, at, rest, depth - 1);
      return;
    }
    std::set<std::size_t> holders;
    for (std::uint64_t n = 1 + pick(3); n > 0; --n) holders.insert(pick(stated.ranks.size()));
    for (const std::size_t rank : holders)
      stated.add(rank, static_cast<std::uint32_t>(stated.specs.size() - 1), offset, shape);
  }

  std::mt19937_64 random_;
};

// Nothing for boxes that cover the tensor; else what the error must say.
std::string expected_error(const Stated& stated) {
  for (std::uint32_t t = 0; t < stated.specs.size(); ++t) {
    const TensorSpec& spec = stated.specs[t];
    const std::vector<int> counts = coverage(spec, boxes_of_tensor(stated, t), true);
    std::string error;
    for_each(Shape(spec.shape.size()), spec.shape, [&](const Shape& index) {
      const int count = counts[flat(index, spec.shape)];
      if (count == 1 || !error.empty()) return;
      if (count > 1) {
        error = cat("tensor ", to_string(spec), ": |overlap at ", text_of(index));
        return;
      }
      error = cat("tensor ", to_string(spec), ": no rank holds [");
      for (std::size_t d = 0; d < index.size(); ++d) absl::StrAppend(&error, d == 0 ? "|" : "|, ", index[d], ":");
    });
    if (!error.empty()) return error;
  }
  return {};
}

TEST(PlanShards, RandomMeshesAreJudgedLikeACountOfEveryElement) {
  int right = 0, holes = 0, overlaps = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Meshes meshes(seed);
    Stated stated(1 + meshes.pick(6));
    for (std::uint64_t n = 1 + meshes.pick(4); n > 0; --n) meshes.add_tensor(stated);
    for (std::uint64_t n = meshes.pick(3); n > 0; --n) meshes.spoil(stated);
    const auto plan = stated.plan();
    const std::string error = expected_error(stated);
    if (plan.ok()) {
      ASSERT_EQ(error, "");
      ASSERT_NO_FATAL_FAILURE(expect_owned_once(stated, *plan));
      ++right;
      continue;
    }
    const std::string text(plan.status().message());
    if (text.find("twice") != std::string::npos) continue;  // a spoilt box is the equal of another of its rank
    ASSERT_NE(error, "") << text;
    std::size_t from = 0;
    std::string rest = error;
    while (!rest.empty()) {  // the parts between the bars, in this order
      const std::string part = rest.substr(0, rest.find('|'));
      rest = rest.size() > part.size() ? rest.substr(part.size() + 1) : "";
      from = text.find(part, from);
      ASSERT_NE(from, std::string::npos) << text << "\n expected " << error;
    }
    ++(text.find("no rank") != std::string::npos ? holes : overlaps);
  }
  EXPECT_GT(right, 500);
  EXPECT_GT(holes, 200);
  EXPECT_GT(overlaps, 200);
}

// ---- what an error says ----

Stated rows_of_w(std::vector<std::pair<std::int64_t, std::int64_t>> rows) {
  Stated stated(rows.size());
  stated.specs = {{"w", DType::kF32, {9, 8}}};
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    stated.add(rank, 0, {rows[rank].first, 0}, {rows[rank].second - rows[rank].first, 8});
  return stated;
}

TEST(PlanShards, NamesTheFirstHole) {
  EXPECT_THAT(rows_of_w({{0, 3}, {3, 6}, {6, 9}}).plan(), IsOk());
  EXPECT_THAT(rows_of_w({{0, 3}, {7, 9}}).plan(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("tensor w F32 [9, 8]: no rank holds [3:7, 0:8]")));
  EXPECT_THAT(rows_of_w({{2, 9}}).plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("[0:2, 0:8]")));
  EXPECT_THAT(rows_of_w({}).plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected 1 to 1024 ranks")));
  Stated none(2);
  none.specs = {{"w", DType::kF32, {9, 8}}};
  EXPECT_THAT(none.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no rank holds [0:9, 0:8]")));
  Stated corner = rows_of_w({{0, 5}, {5, 5}});
  corner.add(1, 0, {5, 0}, {4, 3});
  corner.add(1, 0, {7, 3}, {2, 5});
  EXPECT_THAT(corner.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no rank holds [5:7, 3:8]")));
}

TEST(PlanShards, NamesTheFirstConflictWithItsRanks) {
  EXPECT_THAT(rows_of_w({{0, 4}, {3, 9}}).plan(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("[0:4, 0:8] of rank 0 and [3:9, 0:8] of rank 1 overlap at [3, 0]")));
  Stated twice = rows_of_w({{0, 9}});
  twice.add(0, 0, {0, 0}, {9, 8});
  EXPECT_THAT(twice.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 0 states [0:9, 0:8] twice")));
}

TEST(PlanShards, RefusesBoxesThatAreNotOfTheirTensor) {
  const auto refused = [](Shape offset, Shape shape, std::uint32_t tensor = 0) {
    Stated stated = rows_of_w({{0, 9}, {0, 9}});
    stated.add(1, tensor, std::move(offset), std::move(shape));
    return stated.plan().status();
  };
  EXPECT_THAT(refused({0}, {9}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 1 states a box with")));
  EXPECT_THAT(refused({0, 0}, {9, 9}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("not lie within")));
  EXPECT_THAT(refused({-1, 0}, {9, 8}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("not lie within")));
  EXPECT_THAT(refused({INT64_MAX, 0}, {INT64_MAX, 8}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("not lie")));
  EXPECT_THAT(refused({0, 0}, {-9, 8}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("negative shape [-9, 8]")));
  EXPECT_THAT(refused({0, 0}, {9, 8}, 1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("there are 1 tensors")));
  EXPECT_THAT(refused({9, 0}, {0, 8}), IsOk()) << "FSDP's empty shards lie at the tensor's end";
  Stated huge(1);
  huge.specs = {{"w", DType::kF64, {INT64_MAX, 2}}};
  EXPECT_THAT(huge.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("w")));
}

TEST(PlanShards, TakesScalarsAndEmptyTensors) {
  Stated stated(3);
  stated.specs = {{"scalar", DType::kF32, {}}, {"empty", DType::kF32, {0, 5}}};
  EXPECT_THAT(stated.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("scalar")));
  stated.add(1, 0, {}, {});
  stated.add(2, 0, {}, {});
  const auto plan = stated.plan();
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->ranks[1].boxes.size(), 1U);
  EXPECT_EQ(plan->ranks[2].boxes.size(), 0U);
}

// ---- owners ----

TEST(PlanShards, ReplicasHaveOneOwnerAndAreBalancedByBytes) {
  Meshes meshes(7);
  Stated stated(8);
  std::uint64_t largest = 0, total = 0;
  for (std::uint32_t t = 0; t < 500; ++t) {
    const std::int64_t rows = meshes.between(1, 300);
    stated.specs.push_back({"t" + std::to_string(t), DType::kBF16, {rows, 16}});
    for (std::size_t rank = 0; rank < 8; ++rank) stated.add(rank, t, {0, 0}, {rows, 16});
    largest = std::max(largest, static_cast<std::uint64_t>(rows) * 32);
    total += static_cast<std::uint64_t>(rows) * 32;
  }
  // Rank 0 alone holds one more, which counts for it.
  stated.specs.push_back({"alone", DType::kBF16, {1000, 16}});
  stated.add(0, 500, {0, 0}, {1000, 16});
  const auto plan = stated.plan();
  ASSERT_THAT(plan, IsOk());
  ASSERT_NO_FATAL_FAILURE(expect_owned_once(stated, *plan));
  const auto [least, most] = std::ranges::minmax(plan->ranks, {}, &ShardPlan::Rank::bytes);
  EXPECT_LE(most.bytes - least.bytes, largest);
  EXPECT_LT(most.bytes, (total + 32'000) / 8 * 11 / 10);
}

// ---- size and hostile boxes ----

TEST(PlanShards, TenThousandTensorsOfSixtyFourRanks) {
  constexpr std::size_t kRanks = 64;
  Stated stated(kRanks);
  for (std::uint32_t t = 0; t < 10'000; ++t) {
    stated.specs.push_back({"model.layers." + std::to_string(t), DType::kBF16, {4096 + t % 7, 4096}});
    const std::int64_t rows = stated.specs.back().shape[0], chunk = (rows + kRanks - 1) / std::int64_t{kRanks};
    for (std::size_t rank = 0; rank < kRanks; ++rank) {  // torch.chunk
      const std::int64_t begin = std::min(rows, static_cast<std::int64_t>(rank) * chunk);
      stated.add(rank, t, {begin, 0}, {std::min(chunk, rows - begin), 4096});
    }
  }
  const auto plan = stated.plan();
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->ranks[0].boxes.size(), 10'000U);
}

// The largest lists that are not refused by their size, of boxes that overlap in ways that a pairwise test, or a sweep
// along one dimension, would need n * n steps for.
TEST(PlanShards, HostileBoxesTakeBoundedTime) {
  const std::int64_t n = 100'000;
  Stated nested(1);
  nested.specs = {{"w", DType::kF32, {2 * n, 2 * n}}};
  for (std::int64_t i = 0; i < n; ++i) nested.add(0, 0, {i, i}, {2 * (n - i), 2 * (n - i)});
  EXPECT_THAT(nested.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("overlap at [1, 1]")));
  nested.add(0, 0, {0, 0}, {1, 1});
  EXPECT_THAT(nested.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 100000 boxes")));

  Stated diagonal(1);
  diagonal.specs = {{"w", DType::kF32, {n, n, n, n}}};
  EXPECT_THAT(diagonal.plan(), testing::Not(IsOk())) << "too large a tensor";
  diagonal.specs = {{"w", DType::kF32, {1000, 1000, 1000, 1000}}};
  Meshes meshes(3);
  for (std::int64_t i = 0; i < n; ++i) {
    Shape offset, shape;
    for (int d = 0; d < 4; ++d) {
      offset.push_back(meshes.between(0, 998));
      shape.push_back(meshes.between(1, 1000 - offset.back()));
    }
    diagonal.add(0, 0, offset, shape);
  }
  EXPECT_THAT(diagonal.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("tensor w")));

  Stated grid(10);
  grid.specs = {{"w", DType::kF32, {10, 20, 50, 10}}};
  std::size_t next = 0;
  for_each({0, 0, 0, 0}, {10, 20, 50, 10}, [&](const Shape& at) { grid.add(next++ % 10, 0, at, {1, 1, 1, 1}); });
  EXPECT_THAT(grid.plan(), IsOk()) << "100,000 boxes of one element";

  Stated five(2);
  five.specs = {{"w", DType::kF32, {2, 2, 2, 2, 2}}};
  for_each({0, 0, 0, 0, 0}, {2, 2, 2, 2, 2}, [&](const Shape& at) { five.add(0, 0, at, {1, 1, 1, 1, 1}); });
  EXPECT_THAT(five.plan(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("cut 5 dimensions; expected at most 4")));
}

}  // namespace
}  // namespace bascule
