#include <bascule/trainer_ref/engine/schedule/block_pool.h>

#include <gmock/gmock.h>

#include <numeric>

namespace bascule::ref {
namespace {

using Tokens = std::vector<std::int64_t>;

Tokens block_of(std::int64_t first) {
  Tokens tokens(kBlockTokens);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(BlockPool, HandsOutEachBlockOnceAndThenNone) {
  BlockPool pool(2);
  const BlockId first = *pool.allocate(), second = *pool.allocate();
  EXPECT_NE(first, second);
  EXPECT_EQ(pool.allocate(), std::nullopt);
  pool.free(first);
  EXPECT_EQ(pool.allocate(), first);
}

TEST(BlockPool, ABlockHeldTwiceIsFreeAfterTheSecondRelease) {
  BlockPool pool(1);
  const BlockId block = *pool.allocate();
  pool.retain(block);
  pool.free(block);
  EXPECT_EQ(pool.available(), 0U);
  pool.free(block);
  EXPECT_EQ(pool.available(), 1U);
}

TEST(BlockPool, APublishedPrefixIsFoundWhileHeldAndAfterwards) {
  BlockPool pool(2);
  const BlockId block = *pool.allocate();
  const PrefixId prefix = pool.publish(block, kNoPrefix, block_of(0));
  EXPECT_EQ(pool.find(kNoPrefix, block_of(0))->block, block);
  pool.free(block);
  ASSERT_TRUE(pool.find(kNoPrefix, block_of(0)));
  EXPECT_EQ(pool.find(kNoPrefix, block_of(0))->prefix, prefix);
  EXPECT_FALSE(pool.find(kNoPrefix, block_of(1))) << "other tokens";
  EXPECT_FALSE(pool.find(prefix, block_of(0))) << "the same tokens after another prefix";
  pool.retain(block);
  EXPECT_EQ(pool.available(), 1U);
}

TEST(BlockPool, TheSameTokensPublishedTwiceAreOnePrefix) {
  BlockPool pool(2);
  const BlockId first = *pool.allocate(), second = *pool.allocate();
  const PrefixId prefix = pool.publish(first, kNoPrefix, block_of(0));
  EXPECT_EQ(pool.publish(second, kNoPrefix, block_of(0)), prefix);
  pool.free(second);
  EXPECT_EQ(pool.find(kNoPrefix, block_of(0))->block, first);
  EXPECT_EQ(pool.allocate(), second) << "the copy that is not found is free";
}

TEST(BlockPool, EvictsTheLeastRecentlyUsedPrefix) {
  BlockPool pool(2);
  const BlockId older = *pool.allocate(), newer = *pool.allocate();
  pool.publish(older, kNoPrefix, block_of(0));
  pool.publish(newer, kNoPrefix, block_of(100));
  pool.free(older);
  pool.free(newer);
  pool.retain(older);  // used again: now the newer one
  pool.free(older);
  EXPECT_EQ(pool.allocate(), newer);
  EXPECT_FALSE(pool.find(kNoPrefix, block_of(100)));
  EXPECT_TRUE(pool.find(kNoPrefix, block_of(0)));
}

TEST(BlockPool, DroppingPrefixesFreesWhatNobodyHoldsAndForgetsTheRest) {
  BlockPool pool(2);
  const BlockId held = *pool.allocate(), kept = *pool.allocate();
  pool.publish(held, kNoPrefix, block_of(0));
  pool.publish(kept, kNoPrefix, block_of(100));
  pool.free(kept);
  const std::uint64_t before = pool.generation();
  pool.drop_prefixes();
  EXPECT_NE(pool.generation(), before);
  EXPECT_FALSE(pool.find(kNoPrefix, block_of(0)));
  EXPECT_FALSE(pool.find(kNoPrefix, block_of(100)));
  EXPECT_EQ(pool.available(), 1U);
  pool.free(held);
  EXPECT_EQ(pool.available(), 2U);
}

}  // namespace
}  // namespace bascule::ref
