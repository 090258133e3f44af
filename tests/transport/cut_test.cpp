#include <bascule/transport/cut.h>

#include <gmock/gmock.h>

#include <algorithm>

#include "support/random_boxes.h"
#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::chunks;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

using Shape = std::vector<std::int64_t>;

TensorSpec spec_of(Shape shape) { return {.name = "w", .dtype = DType::kF32, .shape = std::move(shape)}; }

// The boxes that have elements, in row-major order.
std::vector<std::tuple<Shape, Shape, std::uint32_t>> sorted(const std::vector<CutBox>& boxes) {
  std::vector<std::tuple<Shape, Shape, std::uint32_t>> out;
  for (const CutBox& box : boxes)
    if (element_count(box.shape) > 0) out.emplace_back(box.offset, box.shape, box.region);
  std::ranges::sort(out);
  return out;
}

TEST(Cut, OfChunksIsTheSameForTensorsOfDifferentSizes) {
  const Cut cut = Cut::of(spec_of({9, 8}), chunks({9, 8}, 0, 3));
  EXPECT_EQ(cut, (Cut{.pieces = {3}, .regions = {0, 1, 2}, .bounds = {0, 1, 1, 2, 2, 3}}));
  for (const Shape& shape : std::vector<Shape>{{3}, {8, 2}, {300, 1, 7}, {5, 3}})  // 5 rows: 2, 2, 1
    EXPECT_EQ(Cut::of(spec_of(shape), chunks(shape, 0, 3)), cut);
  EXPECT_EQ(Cut::of(spec_of({9, 8}), chunks({9, 8}, 1, 2)),
            (Cut{.pieces = {1, 2}, .regions = {0, 1}, .bounds = {0, 1, 1, 2}}));
}

TEST(Cut, OfAWholeTensorNamesOnlyItsRegion) {
  for (const Shape& shape : std::vector<Shape>{{}, {4}, {0, 3}, {2, 2, 2}}) {
    const Cut cut = Cut::of(spec_of(shape), {{.region = 5, .offset = Shape(shape.size()), .shape = shape}});
    EXPECT_EQ(cut, (Cut{.pieces = {}, .regions = {5}, .bounds = {}}));
    EXPECT_THAT(cut.check(6), IsOk());
    ASSERT_EQ(cut.boxes(shape).size(), 1u);
    EXPECT_EQ(cut.boxes(shape)[0].shape, shape);
  }
}

// 5 rows over 4 ranks are 2, 2, 1 and none.
TEST(Cut, LeavesOutRanksThatGetNothing) {
  const Cut cut = Cut::of(spec_of({5}), chunks({5}, 0, 4));
  EXPECT_EQ(cut.pieces, Shape{3});
  EXPECT_EQ(sorted(cut.boxes(Shape{5})), sorted(chunks({5}, 0, 4)));
}

TEST(Cut, KeepsRandomBoxes) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    Shape shape;
    for (std::size_t d = random() % 5; d > 0; --d) shape.push_back(1 + static_cast<std::int64_t>(random() % 9));
    std::vector<CutBox> boxes;
    test::split_at_random(random, Shape(shape.size()), shape, static_cast<int>(random() % 5), 4, boxes);
    const Cut cut = Cut::of(spec_of(shape), boxes);
    ASSERT_EQ(sorted(cut.boxes(shape)), sorted(boxes)) << "seed " << seed;
    ASSERT_THAT(cut.check(4), IsOk()) << "seed " << seed;
    ASSERT_THAT(cut.check_fits(spec_of(shape)), IsOk()) << "seed " << seed;
  }
}

// The shards of tensor parallelism and FSDP together: columns over 2, and each of these by rows over 3.
TEST(Cut, KeepsAGrid) {
  const Shape shape{8, 6};
  std::vector<CutBox> boxes;
  for (std::uint32_t column = 0; column < 2; ++column)
    for (CutBox box : chunks({8, 3}, 0, 3)) {
      box.region = box.region * 2 + column;
      box.offset[1] = 3 * column;
      boxes.push_back(std::move(box));
    }
  const Cut cut = Cut::of(spec_of(shape), boxes);
  EXPECT_EQ(cut.pieces, (Shape{3, 2}));
  EXPECT_EQ(sorted(cut.boxes(shape)), sorted(boxes));
}

TEST(Cut, OfAPeerIsChecked) {
  const Cut good{.pieces = {3}, .regions = {0, 1, 2}, .bounds = {0, 1, 1, 2, 2, 3}};
  ASSERT_THAT(good.check(3), IsOk());
  EXPECT_THAT(good.check(2), StatusIs(StatusCode::kInvalidArgument, HasSubstr("names region 2, of 2")));
  const auto refusal = [&](auto change) {
    Cut cut = good;
    change(cut);
    return cut.check(3);
  };
  const auto refused = [](const char* why) { return StatusIs(StatusCode::kInvalidArgument, HasSubstr(why)); };
  EXPECT_THAT(refusal([](Cut& cut) { cut.pieces = {0}; }), refused("of no pieces"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.pieces = {-1}; }), refused("of no pieces"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.pieces = Shape(65, 1); }), refused("65 dimensions"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.bounds.pop_back(); }), refused("has 5 bounds"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.regions.pop_back(); }), refused("has 6 bounds"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.bounds[5] = 4; }), refused("from piece 2 to 4 of 3"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.bounds[4] = 3; }), refused("from piece 3 to 3 of 3"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.bounds[2] = 0; }), refused("overlap"));
  EXPECT_THAT(refusal([](Cut& cut) { cut.pieces = {4}; }), refused("no rank holds [3:4]"));
  EXPECT_THAT(refusal([](Cut& cut) {
                cut.pieces = {std::int64_t{1} << 62, std::int64_t{1} << 62};
                cut.regions = {0};
                cut.bounds = {0, 1, 0, 1};
              }),
              refused("a cut"));
  EXPECT_THAT(refusal([](Cut& cut) { cut = {}; }), refused("no rank holds"));
  EXPECT_THAT(good.check_fits(spec_of({2, 9})), refused("more pieces than it has elements"));
  EXPECT_THAT(good.check_fits(spec_of({})), refused("more pieces than it has elements"));
  EXPECT_THAT(good.check_fits(spec_of({3})), IsOk());
}

}  // namespace
}  // namespace bascule
