#include <bascule/trainer_ref/ops/feed_tokens.h>

#include <algorithm>

namespace bascule::ref::ops::plain {

void feed_tokens(std::int64_t* token_ids, const std::int32_t* drawn_by, const Drawn* drawn, std::int64_t count) {
  for (std::int64_t n = 0; n < count; ++n)
    if (drawn_by[n] >= 0) token_ids[n] = std::max(drawn[drawn_by[n]].token, 0);
}

}  // namespace bascule::ref::ops::plain
