// Which tiles a worker that copies parts of the slots can verify, and that it does so in host memory (parts_over.h).
#include <bascule/receiver/part_check.h>

#include "receiver/parts_over.h"

namespace bascule::test {
namespace {

using testing::ElementsAre;

TEST(PlanTiles, AreThoseThatItCopiesWholeAndThoseThatItTouches) {
  PartOfW part;
  const Layout layout = Layout::arrange(kSpecs, {}).value();
  const auto plan = Plan::scatter(layout, part.targets(), /*partial=*/true);
  ASSERT_THAT(plan, IsOk());
  const auto tiles = PlanTiles::make(*plan, layout);
  ASSERT_NE(tiles, nullptr);
  constexpr std::uint64_t kTile = kernels::kTileBytes;
  EXPECT_THAT(tiles->whole.ranges, ElementsAre(ByteRange{kTile, 4 * kTile}));
  EXPECT_THAT(tiles->whole.is_checked, ElementsAre(0, 1, 1, 1, 0, 0));
  EXPECT_EQ(tiles->whole.bytes, (BytesRead{.read = 3 * kTile + kTile / 2, .verified = 3 * kTile}));
  EXPECT_THAT(tiles->touched.ranges, ElementsAre(ByteRange{kTile, 5 * kTile}));
  EXPECT_THAT(tiles->touched.is_checked, ElementsAre(0, 1, 1, 1, 1, 0));
  EXPECT_EQ(tiles->touched.bytes, (BytesRead{.read = 4 * kTile, .verified = 4 * kTile}));
}

// What a tensor-parallel rank of Qwen3-8B reads in one pass, over its weights.
TEST(PlanTiles, OfARankOfQwen3AreFewMoreThanItsWeights) {
  constexpr std::int64_t kHidden = 4096, kMlp = 12288, kQ = 32 * 128, kKv = 8 * 128, kVocabulary = 151936, kHead = 128;
  constexpr int kLayers = 36, kRanks = 2;
  std::vector<TensorSpec> specs;
  std::vector<std::optional<int>> cut;  // the dimension in which each is cut
  const auto add = [&](std::string name, std::vector<std::int64_t> shape, std::optional<int> dim) {
    specs.push_back({std::move(name), DType::kBF16, std::move(shape)});
    cut.push_back(dim);
  };
  add("embed", {kVocabulary, kHidden}, 0);
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto name = [&](const char* of) { return cat("layers.", layer, ".", of); };
    for (const char* norm : {"input_norm", "post_norm"}) add(name(norm), {kHidden}, std::nullopt);
    for (const char* norm : {"q_norm", "k_norm"}) add(name(norm), {kHead}, std::nullopt);
    add(name("q"), {kQ, kHidden}, 0);
    for (const char* of : {"k", "v"}) add(name(of), {kKv, kHidden}, 0);
    add(name("o"), {kHidden, kQ}, 1);
    for (const char* of : {"gate", "up"}) add(name(of), {kMlp, kHidden}, 0);
    add(name("down"), {kHidden, kMlp}, 1);
  }
  add("norm", {kHidden}, std::nullopt);
  add("lm_head", {kVocabulary, kHidden}, 0);
  const Layout layout = Layout::arrange(specs, {}).value();
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<TargetTensor> targets;
    double own = 0;
    for (std::size_t t = 0; t < specs.size(); ++t) {
      TargetTensor target{.name = specs[t].name, .dtype = DType::kBF16, .shape = specs[t].shape};
      if (cut[t]) {
        std::int64_t& size = target.shape[static_cast<std::size_t>(*cut[t])];
        size /= kRanks;
        target.parts = {{specs[t].name, {{.dim = *cut[t], .begin = rank * size, .end = (rank + 1) * size}}}};
      }
      own += static_cast<double>(byte_count(target.dtype, target.shape));
      targets.push_back(std::move(target));
    }
    const auto plan = Plan::scatter(layout, targets, /*partial=*/false);
    ASSERT_THAT(plan, IsOk());
    const auto tiles = PlanTiles::make(*plan, layout);
    ASSERT_NE(tiles, nullptr);
    const auto over_own = [&](std::uint64_t bytes) { return static_cast<double>(bytes) / own; };
    EXPECT_LE(over_own(tiles->whole.bytes.read), 1.01) << "digest=on";
    EXPECT_LE(over_own(tiles->touched.bytes.read), 1.31) << "digest=always";
    EXPECT_NEAR(over_own(tiles->whole.bytes.verified), 0.7, 0.01) << "the verified share with digest=on";
    RecordProperty(cat("rank", rank),
                   cat("on ", over_own(tiles->whole.bytes.read), " always ", over_own(tiles->touched.bytes.read),
                       " verified with on ", over_own(tiles->whole.bytes.verified)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, PartsOver,
    testing::Values(ReadOver{.name = "shmCommit", .scheme = "shm"},
                    ReadOver{.name = "shmBackground", .scheme = "shm", .apply = Apply::kBackground},
                    ReadOver{.name = "memmapCommit", .scheme = "memmap"},
                    ReadOver{.name = "memmapBackground", .scheme = "memmap", .apply = Apply::kBackground}),
    [](const testing::TestParamInfo<ReadOver>& info) { return info.param.name; });

}  // namespace
}  // namespace bascule::test
