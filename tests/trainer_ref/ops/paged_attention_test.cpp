#include <bascule/trainer_ref/ops/paged_attention.h>

#include <numeric>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

struct Shape {
  DType dtype;
  int width, heads, key_heads;
};

// Sequences whose pages lie in the cache in any order, and tokens that attend to them.
class PagedAttention : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { BASCULE_NEEDS_GPUS(1); }

  struct Scene {
    Both<std::int32_t> pages;
    int pages_per_row;
    RealTensor keys, values;
  };
  static Scene scene(std::mt19937& random, const std::vector<int>& lengths) {
    const auto [dtype, width, heads, key_heads] = GetParam();
    const int pages_per_row = (*std::max_element(lengths.begin(), lengths.end()) + kPageTokens - 1) / kPageTokens;
    std::vector<std::int32_t> pages(lengths.size() * static_cast<std::size_t>(pages_per_row));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random);
    const std::size_t count = pages.size() * static_cast<std::size_t>(key_heads * kPageTokens * width);
    return {Both<std::int32_t>(std::move(pages)), pages_per_row, RealTensor::random(random, count, dtype),
            RealTensor::random(random, count, dtype)};
  }
  static PagedCache device_cache(const Scene& scene) {
    return {scene.keys.device(), scene.values.device(), GetParam().dtype, GetParam().key_heads, GetParam().width};
  }
  static PagedCache host_cache(Scene& scene) {
    return {scene.keys.host().data, scene.values.host().data, GetParam().dtype, GetParam().key_heads, GetParam().width};
  }
  static float scale() { return 1 / std::sqrt(static_cast<float>(GetParam().width)); }
};

TEST_P(PagedAttention, TokensLookAtTheirContextsHoweverItIsSplit) {
  const auto [dtype, width, heads, key_heads] = GetParam();
  std::mt19937 random(3);
  const std::vector<int> lengths{1, 2, 15, 16, 17, 63, 64, 65, 128, 500, 1031};
  Scene seen = scene(random, lengths);
  const Both<std::int32_t> contexts(std::vector<std::int32_t>(lengths.begin(), lengths.end()));
  const std::size_t count = lengths.size() * static_cast<std::size_t>(heads * width);
  RealTensor query = RealTensor::random(random, count, dtype, 2), out(count, dtype);
  AttentionInput input{.query = query.host().data,
                       .pages = seen.pages.host.data(),
                       .row_of = nullptr,
                       .context_of = contexts.host.data(),
                       .tokens = static_cast<std::int64_t>(lengths.size()),
                       .pages_per_row = seen.pages_per_row,
                       .heads = heads,
                       .scale = scale()};
  plain::token_attention(out.host().data, host_cache(seen), input);
  input.query = query.device();
  input.pages = seen.pages.device();
  input.context_of = contexts.device();
  for (const int splits : {1, 2, 5, 16}) {
    SCOPED_TRACE(testing::Message() << splits << " splits");
    const Both<float> partial(static_cast<std::size_t>(partial_floats(input.tokens, heads, width, splits)));
    ASSERT_CUDA(token_attention(out.device(), device_cache(seen), input, splits, partial.device(), nullptr));
    EXPECT_LE(out.difference(), tolerance(dtype));
  }
}

// A prompt whose first tokens are already in the cache; several pieces in one batch, after other tokens.
TEST_P(PagedAttention, PiecesOfPromptsLookNoFurtherThanThemselves) {
  const auto [dtype, width, heads, key_heads] = GetParam();
  std::mt19937 random(4);
  struct Piece {
    int begin, count;
  };
  const std::vector<Piece> pieces{{0, 1}, {0, 64}, {0, 200}, {77, 130}, {1000, 33}};
  std::vector<int> lengths;
  std::vector<std::int32_t> rows, contexts;
  std::vector<PromptTile> tiles;
  int tokens = 3;  // of the batch before them
  rows.assign(3, 0);
  contexts.assign(3, 1);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto [begin, count] = pieces[p];
    lengths.push_back(begin + count);
    for (int i = 0; i < count; i += kTileTokens)
      tiles.push_back({static_cast<std::int32_t>(p), tokens + i, std::min(kTileTokens, count - i), begin + i});
    for (int i = 0; i < count; ++i) {
      rows.push_back(static_cast<std::int32_t>(p));
      contexts.push_back(begin + i + 1);
    }
    tokens += count;
  }
  tiles.push_back({});  // padding
  Scene seen = scene(random, lengths);
  const Both<std::int32_t> row_of(rows), context_of(contexts);
  const Both<PromptTile> all(tiles);
  const auto count = static_cast<std::size_t>(tokens * heads * width);
  RealTensor query = RealTensor::random(random, count, dtype, 2), out(count, dtype);
  AttentionInput input{.query = query.host().data,
                       .pages = seen.pages.host.data(),
                       .row_of = rows.data(),
                       .context_of = contexts.data(),
                       .tokens = tokens,
                       .pages_per_row = seen.pages_per_row,
                       .heads = heads,
                       .scale = scale()};
  plain::token_attention(out.host().data, host_cache(seen), input);
  input.query = query.device();
  input.pages = seen.pages.device();
  input.row_of = row_of.device();
  input.context_of = context_of.device();
  ASSERT_CUDA(token_attention(out.device(), device_cache(seen), input, 1, nullptr, nullptr));
  EXPECT_LE(out.difference(), tolerance(dtype));
  if (!has_prompt_attention(device_cache(seen))) return;
  ASSERT_EQ(cudaMemset(static_cast<std::byte*>(out.device()) + 3 * heads * width * 2, 0xff,
                       (static_cast<std::size_t>(tokens) - 3) * static_cast<std::size_t>(heads * width) * 2),
            cudaSuccess);  // NaNs, which it must overwrite
  ASSERT_CUDA(prompt_attention(out.device(), device_cache(seen), input, all.device(),
                               static_cast<std::int64_t>(tiles.size()), nullptr));
  EXPECT_LE(out.difference(), tolerance(dtype));
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttention,
                         ::testing::Values(Shape{DType::kF32, 64, 4, 4}, Shape{DType::kF32, 128, 6, 2},
                                           Shape{DType::kBF16, 64, 14, 2}, Shape{DType::kBF16, 128, 16, 8},
                                           Shape{DType::kBF16, 128, 8, 1}, Shape{DType::kBF16, 64, 9, 3},
                                           Shape{DType::kF32, 24, 4, 4}, Shape{DType::kBF16, 8, 4, 2}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.dtype)) + "of" + std::to_string(info.param.width) +
                                  "heads" + std::to_string(info.param.heads) + "over" +
                                  std::to_string(info.param.key_heads);
                         });

}  // namespace
}  // namespace bascule::ref::ops
