// DigestTotals on the host, with the additions that blocks do on a GPU.
#include <gtest/gtest.h>

#include <random>

#include <bascule/kernels/cuda_digest.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

TEST(DigestTotals, AddUpWhateverTheHashes) {
  std::mt19937_64 random(16);
  std::uint64_t total = 0;
  unsigned long long lower = 0, upper = 0;
  for (std::uint64_t tiles = 1; tiles <= 100'000; ++tiles) {
    const std::uint64_t half = random();
    total += half;
    lower += DigestTotals::lower(half, 1);
    upper += DigestTotals::upper(half, 1);
    ASSERT_EQ(DigestTotals::half(lower, upper), total);
    ASSERT_EQ(DigestTotals::count(lower), tiles);
    ASSERT_EQ(DigestTotals::count(upper), tiles);
  }
}

TEST(DigestTotals, HoldAsManyTilesAsTheySay) {
  constexpr std::uint64_t kMost = DigestTotals::kMostTiles, kHalf = ~std::uint64_t{0};
  const unsigned long long lower = kMost * DigestTotals::lower(kHalf, 1), upper = kMost * DigestTotals::upper(kHalf, 1);
  EXPECT_EQ(DigestTotals::half(lower, upper), kMost * kHalf);
  EXPECT_EQ(DigestTotals::count(lower), kMost);
  EXPECT_EQ(DigestTotals::count(upper), kMost);
}

}  // namespace
}  // namespace bascule::inline v0::kernels::cuda
