#include <bascule/kernels/ordered_work.h>

#include <gtest/gtest.h>

namespace bascule::inline v0::kernels {
namespace {

TEST(OrderedWork, GrowsWithTheOldestPieceInHand) {
  std::atomic<std::uint64_t> done{0};
  OrderedWork work(95, 10, 3, &done);
  EXPECT_EQ(work.pieces(), 10U);
  EXPECT_EQ(work.next(0)->begin, 0U);
  EXPECT_EQ(work.next(1)->begin, 10U);
  EXPECT_EQ(work.next(1)->begin, 20U);
  EXPECT_EQ(done.load(), 0U) << "hand 0 has not finished the first piece";
  EXPECT_EQ(work.next(0)->begin, 30U);
  EXPECT_EQ(done.load(), 20U) << "hand 1 still holds the piece at 20";
  EXPECT_EQ(work.next(2)->begin, 40U);
  EXPECT_EQ(work.next(1)->begin, 50U);
  EXPECT_EQ(done.load(), 30U);
}

TEST(OrderedWork, EndsWithTheShortLastPieceAndAllBytes) {
  std::atomic<std::uint64_t> done{0};
  OrderedWork work(15, 10, 2, &done);
  ASSERT_TRUE(work.next(0));
  const auto last = work.next(1);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->begin, 10U);
  EXPECT_EQ(last->end, 15U);
  EXPECT_FALSE(work.next(1));
  EXPECT_EQ(done.load(), 0U);
  EXPECT_FALSE(work.next(0));
  EXPECT_EQ(done.load(), 15U);
}

TEST(OrderedWork, OfNothingIsComplete) {
  OrderedWork work(0, 10, 1, nullptr);
  EXPECT_EQ(work.pieces(), 0U);
  EXPECT_FALSE(work.next(0));
}

}  // namespace
}  // namespace bascule::inline v0::kernels
