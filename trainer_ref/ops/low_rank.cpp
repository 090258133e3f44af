#include <bascule/trainer_ref/ops/low_rank.h>

#include <numeric>
#include <span>
#include <vector>

namespace bascule::ref::ops::plain {

void low_rank(Reals update, Reals x, const LowRankProduct& product) {
  const auto in = static_cast<std::size_t>(product.in);
  const auto width = static_cast<std::size_t>(std::accumulate(product.out.begin(), product.out.end(), 0));
  for (const AdapterTile& tile : std::span(product.tiles, static_cast<std::size_t>(product.tile_count)))
    for (std::size_t i = 0; i < static_cast<std::size_t>(tile.count); ++i) {
      const auto token = static_cast<std::size_t>(tile.tokens[i]);
      std::size_t first = token * width;  // of the part in the update
      for (std::size_t p = 0; p < static_cast<std::size_t>(product.parts); ++p) {
        const LowRankFactors factors =
            tile.factors == nullptr ? LowRankFactors{} : tile.factors[static_cast<std::size_t>(product.first) + p];
        const Reals a{const_cast<void*>(factors.a), factors.dtype}, b{const_cast<void*>(factors.b), factors.dtype};
        const auto rank = static_cast<std::size_t>(factors.rank), out = static_cast<std::size_t>(product.out[p]);
        std::vector<float> low(rank, 0);
        for (std::size_t j = 0; j < rank; ++j)
          for (std::size_t k = 0; k < in; ++k) low[j] += a[j * in + k] * x[token * in + k];
        for (std::size_t o = 0; o < out; ++o) {
          float sum = 0;
          for (std::size_t j = 0; j < rank; ++j) sum += b[o * rank + j] * low[j];
          update.set(first + o, factors.scale * sum);
        }
        first += out;
      }
    }
}

}  // namespace bascule::ref::ops::plain
