// Plan::scatter, run by kernels::unpack and compared with a naive walk over each part.
#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "support/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/unpack.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// Targets and the memory that they lie in.
struct Targets {
  std::vector<TargetTensor> list;
  std::vector<std::vector<std::byte>> memory;

  std::vector<std::byte>& add(TargetTensor target) {
    memory.emplace_back(byte_count(target.dtype, target.shape), std::byte{0x5a});
    target.data = memory.back().data();
    list.push_back(std::move(target));
    return memory.back();
  }
};

Layout layout_of(std::vector<TensorSpec> specs, std::vector<std::pair<std::string, std::string>> tied = {}) {
  auto layout = Layout::arrange(std::move(specs), std::move(tied));
  EXPECT_THAT(layout, IsOk());
  return *std::move(layout);
}

std::vector<std::byte> random_slot(const Layout& layout, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> slot(layout.bytes());
  for (std::byte& byte : slot) byte = static_cast<std::byte>(random());
  return slot;
}

absl::Status run(const Layout& layout, const std::vector<std::byte>& slot, Targets& targets, bool partial = false) {
  EXPECT_THAT(check_targets(targets.list), IsOk());
  const auto plan = Plan::scatter(layout, targets.list, partial);
  if (!plan.ok()) return plan.status();
  std::vector<std::byte*> addresses;
  for (const TargetTensor& target : targets.list) addresses.push_back(target.data);
  kernels::ThreadPool pool(2);
  EXPECT_EQ(kernels::unpack(plan->segments(), addresses, slot, true, pool), kernels::digest(slot, pool));
  return absl::OkStatus();
}

// The elements that `target` must have: for each, its part and that part's place in the slot.
std::vector<std::byte> naive(const Layout& layout, const std::vector<std::byte>& slot, const TargetTensor& target) {
  const std::size_t bytes = size_of(target.dtype), rank = target.shape.size();
  std::vector<std::byte> out(byte_count(target.dtype, target.shape));
  const auto join = static_cast<std::size_t>(target.join_dim);
  for (std::uint64_t element = 0; element < element_count(target.shape); ++element) {
    std::vector<std::int64_t> index(rank);
    auto rest = static_cast<std::int64_t>(element);
    for (std::size_t d = rank; d-- > 0;) {
      index[d] = rest % target.shape[d];
      rest /= target.shape[d];
    }
    for (const Part& part : target.parts) {
      const Placement& from = *layout.find(part.tensor);
      std::vector<std::int64_t> begin(rank, 0), size = from.spec.shape;
      for (const Slice& slice : part.slices) {
        begin[static_cast<std::size_t>(slice.dim)] = slice.begin;
        size[static_cast<std::size_t>(slice.dim)] = slice.end - slice.begin;
      }
      if (index[join] >= size[join]) {
        index[join] -= size[join];
        continue;
      }
      std::int64_t at = 0;
      for (std::size_t d = 0; d < rank; ++d) at = at * from.spec.shape[d] + begin[d] + index[d];
      std::memcpy(out.data() + element * bytes, slot.data() + from.offset + static_cast<std::size_t>(at) * bytes,
                  bytes);
      break;
    }
  }
  return out;
}

TEST(PlanScatter, MakesJoinsOfSlicesAsAWalkElementByElementDoes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::int64_t below) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
    };
    constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kU8};
    std::vector<TensorSpec> specs;
    std::vector<TargetTensor> wanted;
    for (int i = 0; i < 4; ++i) {
      const DType dtype = kTypes[random() % 4];
      const std::size_t rank = 1 + random() % 3;
      TargetTensor target{.name = cat("target", i), .dtype = dtype};
      for (std::size_t d = 0; d < rank; ++d) target.shape.push_back(1 + pick(6));
      target.join_dim = static_cast<int>(pick(static_cast<std::int64_t>(rank)));
      const auto join = static_cast<std::size_t>(target.join_dim);
      target.shape[join] = 0;
      for (std::int64_t parts = 1 + pick(3); parts > 0; --parts) {
        TensorSpec spec{.name = cat("t", specs.size()), .dtype = dtype, .shape = target.shape};
        spec.shape[join] = 1 + pick(5);
        Part part{.tensor = spec.name};
        std::int64_t taken = spec.shape[join];
        for (std::size_t d = 0; d < rank; ++d) {
          if (pick(2) == 0) continue;
          const std::int64_t before = pick(3), after = pick(3);
          part.slices.push_back({.dim = static_cast<int>(d), .begin = before, .end = before + spec.shape[d]});
          spec.shape[d] += before + after;
        }
        target.shape[join] += taken;
        target.parts.push_back(std::move(part));
        specs.push_back(std::move(spec));
      }
      wanted.push_back(std::move(target));
    }
    const Layout layout = layout_of(specs);
    const std::vector<std::byte> slot = random_slot(layout, seed);
    Targets targets;
    for (TargetTensor& target : wanted) targets.add(std::move(target));
    ASSERT_THAT(run(layout, slot, targets), IsOk()) << "seed " << seed;
    for (std::size_t i = 0; i < targets.list.size(); ++i)
      ASSERT_EQ(targets.memory[i], naive(layout, slot, targets.list[i])) << "seed " << seed << ", target " << i;
  }
}

// Both ranks of a layer: a fused qkv_proj split by rows, an o_proj split by columns, and a whole norm.
TEST(PlanScatter, GivesEachRankItsShareOfALayer) {
  const Layout layout = layout_of({{"q", DType::kU8, {4, 2}},
                                   {"k", DType::kU8, {2, 2}},
                                   {"v", DType::kU8, {2, 2}},
                                   {"o", DType::kU8, {2, 4}},
                                   {"norm", DType::kU8, {3}}});
  std::vector<std::byte> slot(layout.bytes());
  const auto write = [&](const char* name, const std::string& text) {
    std::memcpy(slot.data() + layout.find(name)->offset, text.data(), text.size());
  };
  write("q", "aabbccdd");
  write("k", "eeff");
  write("v", "gghh");
  write("o", "1234abcd");
  write("norm", "xyz");
  for (const std::int64_t rank : {0, 1}) {
    Targets targets;
    targets.add(
        {.name = "qkv",
         .dtype = DType::kU8,
         .shape = {4, 2},
         .parts = {{"q", {{0, rank * 2, rank * 2 + 2}}}, {"k", {{0, rank, rank + 1}}}, {"v", {{0, rank, rank + 1}}}}});
    targets.add({.name = "o", .dtype = DType::kU8, .shape = {2, 2}, .parts = {{"o", {{1, rank * 2, rank * 2 + 2}}}}});
    targets.add({.name = "norm", .dtype = DType::kU8, .shape = {3}});
    ASSERT_THAT(run(layout, slot, targets), IsOk());
    const auto text = [&](std::size_t i) {
      return std::string(reinterpret_cast<const char*>(targets.memory[i].data()), targets.memory[i].size());
    };
    EXPECT_EQ(text(0), rank == 0 ? "aabbeegg" : "ccddffhh");
    EXPECT_EQ(text(1), rank == 0 ? "12ab" : "34cd");
    EXPECT_EQ(text(2), "xyz");
    EXPECT_FALSE(Plan::scatter(layout, targets.list, false)->reads_all());
  }
}

TEST(PlanScatter, CastsToTheTargetsType) {
  const Layout layout = layout_of({{"w", DType::kBF16, {3}}});
  std::vector<std::byte> slot(6);
  const std::uint16_t halves[] = {0x3F80, 0xC000, 0x7F80};  // 1, -2, infinity
  std::memcpy(slot.data(), halves, 6);
  Targets targets;
  const std::vector<std::byte>& found = targets.add({.name = "w", .dtype = DType::kF32, .shape = {3}});
  ASSERT_THAT(run(layout, slot, targets), IsOk());
  std::vector<float> floats(3);
  std::memcpy(floats.data(), found.data(), 12);
  EXPECT_THAT(floats, testing::ElementsAre(1.0f, -2.0f, std::numeric_limits<float>::infinity()));
}

TEST(PlanScatter, TakesATensorByEachOfItsNamesAndTiedTargetsOnce) {
  const Layout layout = layout_of({{"embed", DType::kU8, {5}}, {"none", DType::kF32, {0, 2}}, {"one", DType::kI64, {}}},
                                  {{"head", "embed"}});
  const std::vector<std::byte> slot = random_slot(layout, 1);
  const std::vector<std::byte> embed(slot.begin() + long(layout.find("embed")->offset),
                                     slot.begin() + long(layout.find("embed")->offset) + 5);
  Targets targets;
  targets.add({.name = "head", .dtype = DType::kU8, .shape = {5}});
  targets.add({.name = "none", .dtype = DType::kF32, .shape = {0, 2}});
  targets.add({.name = "one", .dtype = DType::kI64, .shape = {}});
  ASSERT_THAT(run(layout, slot, targets), IsOk());
  EXPECT_EQ(targets.memory[0], embed);
  EXPECT_EQ(std::memcmp(targets.memory[2].data(), slot.data() + layout.find("one")->offset, 8), 0);
  EXPECT_TRUE(Plan::scatter(layout, targets.list, false)->reads_all());

  TargetTensor tied = targets.list[0];
  tied.name = "embed";
  targets.list.push_back(tied);
  ASSERT_THAT(run(layout, slot, targets), IsOk());
  EXPECT_EQ(Plan::scatter(layout, targets.list, false)->segments().size(), 2) << "one storage is written once";
}

TEST(PlanScatter, NamesTargetPartAndShapesAndCountsTheRest) {
  const Layout layout = layout_of({{"a", DType::kF32, {4, 6}}, {"b", DType::kF32, {2, 6}}, {"i", DType::kI32, {3}}});
  const auto refused = [&](TargetTensor target, const std::string& text, bool partial = true) {
    SCOPED_TRACE(text);
    target.dtype = target.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    Targets targets;
    targets.add(std::move(target));
    const absl::Status status = Plan::scatter(layout, targets.list, partial).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
    EXPECT_EQ(status.message().find("more difference") != absl::string_view::npos, !partial) << status;
  };
  refused({.name = "c", .shape = {4}}, "target c F32 [4]: c is not sent");
  refused({.name = "a", .shape = {6, 4}}, "target a F32 [6, 4]: expected the shape [6, 4], found [4, 6] of a");
  refused({.name = "i", .shape = {3}}, "target i F32 [3]: i I32 [3] cannot be cast to F32");
  refused({.name = "t", .shape = {4, 6}, .parts = {{"a", {{2, 0, 1}}}}}, "dimension 2 of a F32 [4, 6] is sliced, but");
  refused({.name = "t", .shape = {1, 6}, .parts = {{"a", {{0, 0, 2}, {0, 0, 1}}}}}, "of a F32 [4, 6] is sliced twice");
  refused({.name = "t", .shape = {3, 6}, .parts = {{"a", {{0, 2, 5}}}}},
          "the slice [2, 5) of dimension 0 lies beyond a F32 [4, 6]");
  refused({.name = "ab", .shape = {7, 6}, .parts = {{"a"}, {"b"}}},
          "target ab F32 [7, 6]: expected 7 along dimension 0, found 6 in its 2 parts");
  refused({.name = "ab", .shape = {5, 6}, .parts = {{"a"}, {"b"}}}, "expected 5 along dimension 0, found 6");
  refused({.name = "ab", .shape = {6, 5}, .parts = {{"a", {{1, 0, 5}}}, {"b"}}},
          "target ab F32 [6, 5], part 2 of 2: expected (except for the dimension joined) the shape [6, 5], found [2, "
          "6] of b");
  refused({.name = "ab", .shape = {6, 6}, .parts = {{"a"}, {"b"}}, .join_dim = 2},
          "target ab F32 [6, 6]: join_dim 2 is out of range for 2 dimensions");
  refused({.name = "c", .shape = {4}}, "c is not sent; and 3 more differences", false);
}

TEST(PlanScatter, ATensorThatNoTargetTakesIsForgottenUnlessOnlyAPartIsWanted) {
  const Layout layout = layout_of({{"a", DType::kF32, {4}}, {"b", DType::kF32, {2}}});
  Targets targets;
  targets.add({.name = "a", .shape = {4}});
  EXPECT_THAT(Plan::scatter(layout, targets.list, false),
              StatusIs(StatusCode::kInvalidArgument, "tensor b F32 [2] is sent, but no target takes it"));
  const auto plan = Plan::scatter(layout, targets.list, true);
  ASSERT_THAT(plan, IsOk());
  EXPECT_FALSE(plan->reads_all());
}

TEST(PlanScatter, RefusesOneStorageMadeOfTwoThings) {
  const Layout layout = layout_of({{"a", DType::kF32, {4}}, {"b", DType::kF32, {4}}});
  Targets targets;
  targets.add({.name = "a", .shape = {4}});
  targets.list.push_back({.name = "b", .shape = {4}, .data = targets.list[0].data});
  EXPECT_THAT(
      Plan::scatter(layout, targets.list, false),
      StatusIs(StatusCode::kInvalidArgument, "target b shares its storage with a, but is made of other tensors"));
}

TEST(PlanScatter, RefusesMoreSeparateStridesThanAKernelWalks) {
  const std::vector<std::int64_t> shape(kernels::kMaxRank + 1, 3);
  const Layout layout = layout_of({{"w", DType::kU8, shape}});
  TargetTensor target{.name = "w", .dtype = DType::kU8, .shape = std::vector<std::int64_t>(shape.size(), 2)};
  target.parts = {{"w", {}}};
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) target.parts[0].slices.push_back({d, 0, 2});
  Targets targets;
  targets.add(target);
  EXPECT_THAT(Plan::scatter(layout, targets.list, false),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("target w: a part lies in more than 6 separate")));
  targets = {};
  target.parts[0].slices.back() = {static_cast<int>(shape.size()) - 1, 0, 3};
  target.shape.back() = 3;
  targets.add(target);
  EXPECT_THAT(Plan::scatter(layout, targets.list, false), IsOk()) << "the inner two lie in one run";
}

}  // namespace
}  // namespace bascule
