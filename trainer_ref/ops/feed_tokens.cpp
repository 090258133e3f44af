#include <bascule/trainer_ref/ops/feed_tokens.h>

#include <algorithm>

namespace bascule::ref::ops::plain {

void feed_tokens(std::int32_t* history, const FedTokens& fed) {
  for (std::int64_t n = 0; n < fed.tokens; ++n) {
    if (n < fed.singles && fed.drawn_by[n] >= 0) fed.token_ids[n] = std::max(fed.drawn[fed.drawn_by[n]].token, 0);
    history[fed.places[n]] = static_cast<std::int32_t>(fed.token_ids[n]);
  }
}

}  // namespace bascule::ref::ops::plain
