#include <bascule/trainer_ref/ops/feed_tokens.h>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

TEST(FeedTokens, IsItsTwins) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937 random(1);
  for (const std::size_t count : {1, 255, 256, 1000}) {
    std::vector<std::int64_t> tokens(count);
    std::vector<std::int32_t> drawn_by(count);
    std::vector<Drawn> drawn(count);
    for (std::size_t n = 0; n < count; ++n) {
      tokens[n] = static_cast<std::int64_t>(random() % 1000);
      drawn_by[n] = static_cast<std::int32_t>(random() % (count + 1)) - 1;
      drawn[n].token = static_cast<std::int32_t>(random() % 1000) - 1;  // -1: the draw had none
    }
    const Both fed(tokens);
    ASSERT_CUDA(feed_tokens(fed.device(), Both(drawn_by).device(), Both(drawn).device(),
                            static_cast<std::int64_t>(count), nullptr));
    plain::feed_tokens(tokens.data(), drawn_by.data(), drawn.data(), static_cast<std::int64_t>(count));
    EXPECT_EQ(fed.fetched(), tokens);
  }
}

}  // namespace
}  // namespace bascule::ref::ops
