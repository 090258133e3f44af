#include <bascule/trainer_ref/ops/paged_attention.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <bascule/trainer_ref/ops/plain_real.h>

namespace bascule::ref::ops {

int splits_for(std::int64_t tokens, int key_heads, std::int64_t longest_context, int processors) {
  constexpr std::int64_t kBlocksPerProcessor = 4, kShortest = 64, kMost = 64;
  const std::int64_t whole = std::max<std::int64_t>(1, tokens * key_heads);
  const std::int64_t wanted = (kBlocksPerProcessor * processors + whole - 1) / whole;
  return static_cast<int>(std::clamp<std::int64_t>(std::min(wanted, longest_context / kShortest), 1, kMost));
}

std::int64_t partial_floats(std::int64_t tokens, int heads, int width, int splits) {
  return splits > 1 ? tokens * heads * splits * (width + 2) : 0;
}

namespace plain {

void token_attention(void* out, const PagedCache& cache, const AttentionInput& input) {
  const Reals query{const_cast<void*>(input.query), cache.dtype}, result{out, cache.dtype};
  const Reals keys{cache.keys, cache.dtype}, values{cache.values, cache.dtype};
  const auto width = static_cast<std::size_t>(cache.width);
  const int shared = input.heads / cache.heads;
  for (std::int64_t n = 0; n < input.tokens; ++n) {
    const std::int32_t* const pages =
        input.pages + static_cast<std::int64_t>(input.row_of != nullptr ? input.row_of[n] : n) * input.pages_per_row;
    const std::int64_t context = input.context_of[n];
    for (int head = 0; head < input.heads; ++head) {
      const std::size_t at = static_cast<std::size_t>(n * input.heads + head) * width;
      std::vector<double> weights(static_cast<std::size_t>(context));
      const auto offset = [&](std::int64_t t) {
        return offset_in(cache, std::int64_t{pages[t / kPageTokens]} * kPageTokens + t % kPageTokens, head / shared);
      };
      double highest = -INFINITY, total = 0;
      for (std::int64_t t = 0; t < context; ++t) {
        double dot = 0;
        for (std::size_t i = 0; i < width; ++i) dot += static_cast<double>(query[at + i]) * keys[offset(t) + i];
        weights[static_cast<std::size_t>(t)] = dot * input.scale;
        highest = std::max(highest, dot * input.scale);
      }
      for (double& weight : weights) total += weight = std::exp(weight - highest);
      std::vector<double> sum(width);
      for (std::int64_t t = 0; t < context; ++t)
        for (std::size_t i = 0; i < width; ++i) sum[i] += weights[static_cast<std::size_t>(t)] * values[offset(t) + i];
      for (std::size_t i = 0; i < width; ++i) result.set(at + i, static_cast<float>(sum[i] / total));
    }
  }
}

}  // namespace plain
}  // namespace bascule::ref::ops
