#include <bascule/trainer_ref/ops/feed_tokens.h>

#include <numeric>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

TEST(FeedTokens, IsItsTwins) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937 random(1);
  for (const std::size_t count : {1, 255, 256, 1000})
    for (const std::size_t singles : {std::size_t{0}, count / 2, count}) {
      SCOPED_TRACE(testing::Message() << count << " tokens, " << singles << " singles");
      std::vector<std::int64_t> tokens(count), places(3 * count);
      std::vector<std::int32_t> drawn_by(singles);
      std::vector<Drawn> drawn(count);
      for (std::size_t n = 0; n < count; ++n) {
        tokens[n] = static_cast<std::int64_t>(random() % 1000);
        drawn[n].token = static_cast<std::int32_t>(random() % 1000) - 1;  // -1: the draw had none
      }
      for (std::int32_t& each : drawn_by) each = static_cast<std::int32_t>(random() % (count + 1)) - 1;
      std::iota(places.begin(), places.end(), 0);
      std::shuffle(places.begin(), places.end(), random);
      Both fed(tokens);
      Both history(std::vector<std::int32_t>(3 * count, -7));
      const Both by(drawn_by);
      const Both at(places);
      const Both draws(drawn);
      const auto with = [&](std::int64_t* ids, const std::int32_t* by_which, const Drawn* from,
                            const std::int64_t* where) {
        return FedTokens{.token_ids = ids,
                         .drawn_by = by_which,
                         .drawn = from,
                         .places = where,
                         .singles = static_cast<std::int64_t>(singles),
                         .tokens = static_cast<std::int64_t>(count)};
      };
      ASSERT_CUDA(feed_tokens(history.device(), with(fed.device(), by.device(), draws.device(), at.device()), nullptr));
      plain::feed_tokens(history.host.data(), with(fed.host.data(), drawn_by.data(), drawn.data(), places.data()));
      EXPECT_EQ(fed.fetched(), fed.host);
      EXPECT_EQ(history.fetched(), history.host);
    }
}

}  // namespace
}  // namespace bascule::ref::ops
