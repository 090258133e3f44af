#include <bascule/trainer_ref/ops/low_rank.h>

#include <numeric>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

// An adapter's factors, in both memories; `misaligned` puts each a few elements after an aligned address.
struct TestFactors {
  TestFactors(std::mt19937& random, int rank, DType dtype, const LowRankProduct& product, bool misaligned) {
    const std::size_t gap = misaligned ? 3 : 0;
    for (std::size_t p = 0; p < static_cast<std::size_t>(product.parts); ++p) {
      const auto r = static_cast<std::size_t>(p == 1 ? (rank + 1) / 2 : rank);  // ranks of modules may differ
      tensors.push_back(RealTensor::random(random, gap + r * static_cast<std::size_t>(product.in), dtype, 0.1F));
      tensors.push_back(RealTensor::random(random, gap + r * static_cast<std::size_t>(product.out[p]), dtype, 0.1F));
      ranks.push_back(static_cast<std::int32_t>(r));
    }
    const auto after = [&](void* memory) { return static_cast<std::byte*>(memory) + gap * size_of(dtype); };
    std::vector<LowRankFactors> device_side;
    for (std::size_t p = 0; p < ranks.size(); ++p) {
      host.push_back({after(tensors[2 * p].host().data), after(tensors[2 * p + 1].host().data),
                      0.5F + static_cast<float>(p), ranks[p], dtype});
      device_side.push_back(
          {after(tensors[2 * p].device()), after(tensors[2 * p + 1].device()), host.back().scale, ranks[p], dtype});
    }
    device = std::make_unique<Both<LowRankFactors>>(std::move(device_side));
  }
  std::vector<RealTensor> tensors;
  std::vector<std::int32_t> ranks;
  std::vector<LowRankFactors> host;
  std::unique_ptr<Both<LowRankFactors>> device;
};

class LowRankOps : public ::testing::TestWithParam<std::tuple<DType, DType>> {};

// Tokens of several adapters and of none, in tiles that are full, part full and empty.
TEST_P(LowRankOps, AreTheirTwin) {
  BASCULE_NEEDS_GPUS(1);
  const auto [dtype, factor_dtype] = GetParam();
  std::mt19937 random(1);
  for (const std::array<int, kMostParts>& out : {std::array{256, 64, 64}, {1000, 0, 0}, {384, 384, 0}})
    for (const int rank : {1, 4, 16, 67, 512})
      for (const int tokens : {1, 7, 40}) {
        SCOPED_TRACE(testing::Message() << "rank " << rank << ", " << tokens << " tokens, out " << out[0]);
        LowRankProduct product{.rank = rank, .out = out, .in = 264};
        product.parts = static_cast<int>(std::ranges::count_if(out, [](int rows) { return rows > 0; }));
        std::vector<TestFactors> adapters;
        for (const bool misaligned : {false, true})
          adapters.emplace_back(random, misaligned ? std::max(1, rank / 2) : rank, factor_dtype, product, misaligned);
        std::vector<AdapterTile> tiles, on_device;
        for (std::size_t a = 0; a <= adapters.size(); ++a) {  // the last tokens have no adapter
          tiles.push_back({.factors = nullptr, .count = 0});  // padding may come anywhere
          on_device.push_back(tiles.back());
          std::vector<std::int32_t> own;
          for (int t = 0; t < tokens; ++t)
            if (t % 3 == static_cast<int>(a)) own.push_back(tokens - 1 - t);
          for (std::size_t first = 0; first < own.size(); first += kTileRows) {
            AdapterTile tile{.factors = a < adapters.size() ? adapters[a].host.data() : nullptr,
                             .count = static_cast<std::int32_t>(std::min<std::size_t>(kTileRows, own.size() - first))};
            std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(first), tile.count, tile.tokens.begin());
            tiles.push_back(tile);
            if (a < adapters.size()) tile.factors = adapters[a].device->device();
            on_device.push_back(tile);
          }
        }
        const Both<AdapterTile> device_tiles(on_device);
        const auto width = static_cast<std::size_t>(std::accumulate(out.begin(), out.end(), 0));
        RealTensor x = RealTensor::random(random, static_cast<std::size_t>(tokens) * 264, dtype);
        RealTensor update = RealTensor::random(random, static_cast<std::size_t>(tokens) * width, dtype);
        product.tile_count = static_cast<std::int64_t>(tiles.size());
        product.tiles = tiles.data();
        plain::low_rank(update.host(), x.host(), product);
        product.tiles = device_tiles.device();
        const Both<float> low(static_cast<std::size_t>(low_floats(product, dtype)));
        ASSERT_CUDA(shrink(low.device(), x.device(), dtype, product, nullptr));
        ASSERT_CUDA(expand(update.device(), low.device(), dtype, product, nullptr));
        EXPECT_LE(update.difference(), tolerance(dtype));
      }
}

INSTANTIATE_TEST_SUITE_P(Types, LowRankOps,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "By" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace bascule::ref::ops
