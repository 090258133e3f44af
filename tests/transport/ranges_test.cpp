#include <bascule/transport/ranges.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "support/status.h"
#include <bascule/transport/plan.h>
#include <bascule/transport/target.h>

namespace bascule {
namespace {

using kernels::kTileBytes;
using test::IsOk;

// The bytes of the slot that `target`, one box of a tensor, is made of.
void mark(const Layout& layout, const TargetTensor& target, std::vector<bool>& read) {
  const Part& part = target.parts.front();
  const Placement& from = *layout.find(part.tensor);
  const std::vector<std::int64_t>& shape = from.spec.shape;
  for (std::uint64_t element = 0; element < element_count(shape); ++element) {
    std::uint64_t rest = element;
    bool inside = true;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const auto index = static_cast<std::int64_t>(rest % static_cast<std::uint64_t>(shape[d]));
      rest /= static_cast<std::uint64_t>(shape[d]);
      for (const Slice& slice : part.slices)
        if (static_cast<std::size_t>(slice.dim) == d && (index < slice.begin || index >= slice.end)) inside = false;
    }
    const std::uint64_t bytes = size_of(from.spec.dtype);
    for (std::uint64_t i = 0; inside && i < bytes; ++i) read[from.offset + element * bytes + i] = true;
  }
}

std::vector<ByteRange> marked(const std::vector<bool>& read) {
  std::vector<ByteRange> ranges;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!read[i]) continue;
    if (ranges.empty() || ranges.back().end != i) ranges.push_back({i, i});
    ranges.back().end = i + 1;
  }
  return ranges;
}

TEST(Ranges, OfRandomPlansAreTheBytesThatTheyRead) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto pick = [&](std::int64_t below) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
    };
    std::vector<TensorSpec> specs;
    for (int i = 0; i < 4; ++i) {
      TensorSpec spec{.name = std::string(1, static_cast<char>('a' + i)), .dtype = DType::kBF16, .shape = {}};
      for (std::int64_t d = pick(4); d > 0; --d) spec.shape.push_back(1 + pick(9));
      specs.push_back(spec);
    }
    const auto layout = Layout::arrange(specs, {});
    ASSERT_THAT(layout, IsOk());
    std::vector<TargetTensor> targets;
    std::vector<bool> read(layout->bytes());
    for (int i = 0; i < 5; ++i) {
      const TensorSpec& spec = specs[static_cast<std::size_t>(pick(4))];
      TargetTensor target{.name = std::to_string(i), .dtype = DType::kF32, .shape = spec.shape, .parts = {{spec.name}}};
      for (std::size_t d = 0; d < spec.shape.size(); ++d) {
        if (pick(2) == 0) continue;
        const std::int64_t begin = pick(spec.shape[d]), end = begin + pick(spec.shape[d] - begin + 1);
        target.parts[0].slices.push_back({.dim = static_cast<int>(d), .begin = begin, .end = end});
        target.shape[d] = end - begin;
      }
      mark(*layout, target, read);
      targets.push_back(target);
    }
    const auto plan = Plan::scatter(*layout, targets, /*partial=*/true);
    ASSERT_THAT(plan, IsOk());
    const auto ranges = ranges_of(plan->segments());
    ASSERT_THAT(ranges, IsOk());
    EXPECT_EQ(*ranges, marked(read));
    EXPECT_EQ(bytes_of(*ranges), static_cast<std::uint64_t>(std::ranges::count(read, true)));
  }
}

TEST(Ranges, OfAWholeSlotAreOneRange) {
  const auto layout = Layout::arrange({{"a", DType::kF32, {64, 64}}, {"b", DType::kBF16, {7}}}, {});
  ASSERT_THAT(layout, IsOk());
  const std::vector<TargetTensor> targets = {{.name = "a", .dtype = DType::kF32, .shape = {64, 64}},
                                             {.name = "b", .dtype = DType::kBF16, .shape = {7}}};
  const auto plan = Plan::scatter(*layout, targets, false);
  ASSERT_THAT(plan, IsOk());
  const auto ranges = ranges_of(plan->segments());
  ASSERT_THAT(ranges, IsOk());
  EXPECT_EQ(*ranges, (std::vector<ByteRange>{{0, layout->bytes()}}));
}

TEST(Ranges, TooManyAreRefused) {
  kernels::Segment columns{
      .rank = 2, .elements = std::uint64_t{1} << 30, .shape = {1 << 30, 1}, .slot_strides = {8, 1}};
  EXPECT_THAT(ranges_of(std::span(&columns, 1)),
              test::StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("16777216 separate ranges")));
}

TEST(WholeTiles, AreThoseWithAllTheirBytes) {
  const std::uint64_t end = 3 * kTileBytes + 100;
  const auto whole = [&](std::vector<ByteRange> ranges) { return whole_tiles(ranges, end); };
  using List = std::vector<ByteRange>;
  EXPECT_EQ(whole({{0, end}}), (List{{0, end}}));
  EXPECT_EQ(whole({{1, end}}), (List{{kTileBytes, end}}));
  EXPECT_EQ(whole({{0, end - 1}}), (List{{0, 3 * kTileBytes}}));
  EXPECT_EQ(whole({{1, 2 * kTileBytes - 1}}), List{});
  EXPECT_EQ(whole({{5, 6}, {3 * kTileBytes, end}}), (List{{3 * kTileBytes, end}}));
  EXPECT_EQ(whole({{0, kTileBytes + 5}, {2 * kTileBytes - 5, end}}), (List{{0, kTileBytes}, {2 * kTileBytes, end}}));
  EXPECT_EQ(whole({{3 * kTileBytes + 1, end}}), List{});
  EXPECT_EQ(whole({}), List{});
  EXPECT_EQ(whole_tiles(List{}, 0), List{});
}

TEST(TouchedTiles, AreThoseWithAnyByte) {
  const std::uint64_t end = 3 * kTileBytes + 100;
  const auto touched = [&](std::vector<ByteRange> ranges) { return touched_tiles(ranges, end); };
  using List = std::vector<ByteRange>;
  EXPECT_EQ(touched({{0, end}}), (List{{0, end}}));
  EXPECT_EQ(touched({{1, 2}, {5, 6}, {kTileBytes - 1, kTileBytes}}), (List{{0, kTileBytes}}));
  EXPECT_EQ(touched({{1, 2}, {kTileBytes, kTileBytes + 1}}), (List{{0, 2 * kTileBytes}}));
  EXPECT_EQ(touched({{1, 2}, {2 * kTileBytes - 1, 2 * kTileBytes + 1}}), (List{{0, 3 * kTileBytes}}));
  EXPECT_EQ(touched({{5, 6}, {3 * kTileBytes + 50, end - 1}}), (List{{0, kTileBytes}, {3 * kTileBytes, end}}));
  EXPECT_EQ(touched({}), List{});
}

TEST(WrongTiles, AreNamedByTheirBytes) {
  std::mt19937_64 random(5);
  std::vector<std::byte> bytes(6 * kTileBytes + 300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const Region region{.first_page = 11, .bytes = bytes.size()};
  kernels::ThreadPool pool(2);
  DigestTable table(kernels::tiles_of(bytes.size()));
  kernels::digest(bytes, pool, {.first_page = 11, .totals = table});
  const std::vector<ByteRange> all = {{0, bytes.size()}};
  using List = std::vector<ByteRange>;
  EXPECT_EQ(wrong_tiles(region, table, all, bytes, pool), List{});

  bytes[2 * kTileBytes] ^= std::byte{1};
  bytes[4 * kTileBytes - 1] ^= std::byte{128};
  bytes.back() ^= std::byte{1};
  EXPECT_EQ(wrong_tiles(region, table, all, bytes, pool),
            (List{{2 * kTileBytes, 4 * kTileBytes}, {6 * kTileBytes, bytes.size()}}));
  EXPECT_EQ(wrong_tiles(region, table, List{{0, 3 * kTileBytes}}, bytes, pool),
            (List{{2 * kTileBytes, 3 * kTileBytes}}))
      << "tiles that were not read whole are not judged";

  bytes[2 * kTileBytes] ^= std::byte{1};
  bytes[4 * kTileBytes - 1] ^= std::byte{128};
  bytes.back() ^= std::byte{1};
  EXPECT_EQ(wrong_tiles({.first_page = 12, .bytes = bytes.size()}, table, all, bytes, pool), all)
      << "right bytes in another place of the version";
}

}  // namespace
}  // namespace bascule
