#include <bascule/bench/statistics.h>

#include <gtest/gtest.h>

#include <vector>

namespace bascule::bench {
namespace {

TEST(Statistics, QuantilesLieBetweenNeighbours) {
  const std::vector<double> values = {4, 1, 3, 2};  // in no order
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 3.7);  // numpy.quantile([1, 2, 3, 4], 0.9)
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
}

TEST(Statistics, OneValueIsEveryQuantileAndNoneIsZero) {
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

TEST(Statistics, SummaryHoldsItsQuantiles) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Summary summary = summarise(values);
  EXPECT_EQ(summary.samples, 101u);
  EXPECT_DOUBLE_EQ(summary.p50, 50);
  EXPECT_DOUBLE_EQ(summary.p90, 90);
  EXPECT_DOUBLE_EQ(summary.p99, 99);
  EXPECT_DOUBLE_EQ(summary.min, 0);
}

TEST(Statistics, RatioOfValuesThatNeverVaryIsExact) {
  const Interval ratio = ratio_of_medians(std::vector<double>(10, 3.0), std::vector<double>(20, 2.0), 1);
  EXPECT_DOUBLE_EQ(ratio.low, 1.5);
  EXPECT_DOUBLE_EQ(ratio.high, 1.5);
}

TEST(Statistics, RatioOfScatteredValuesHoldsTheRatioOfTheirMedians) {
  std::vector<double> above, below;
  for (int i = 0; i < 50; ++i) {
    above.push_back(2 + 0.01 * (i % 10));
    below.push_back(1 + 0.01 * (i % 7));
  }
  const Interval ratio = ratio_of_medians(above, below, 1);
  const double medians = quantile(above, 0.5) / quantile(below, 0.5);
  EXPECT_LE(ratio.low, medians);
  EXPECT_GE(ratio.high, medians);
  EXPECT_LT(ratio.low, ratio.high);
  EXPECT_GT(ratio.low, 1.9);
  EXPECT_LT(ratio.high, 2.1);
}

TEST(Statistics, TheSameSeedResamplesTheSame) {
  const std::vector<double> above = {1, 2, 3, 4, 5}, below = {2, 4, 6};
  EXPECT_DOUBLE_EQ(ratio_of_medians(above, below, 7).low, ratio_of_medians(above, below, 7).low);
  EXPECT_DOUBLE_EQ(ratio_of_medians(above, below, 7).high, ratio_of_medians(above, below, 7).high);
}

}  // namespace
}  // namespace bascule::bench
