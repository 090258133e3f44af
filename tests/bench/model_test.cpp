#include <bascule/bench/model.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "support/status.h"

namespace bascule::bench {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

std::uint64_t sum_of(const std::vector<TensorSize>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TensorSize& size) { return sum + size.elements; });
}

TEST(Model, TensorsHaveNamesOfTheirOwnAndFillTheBytes) {
  for (const auto kind : {ModelShape::Kind::kDecoder, ModelShape::Kind::kEqual})
    for (const std::uint64_t tensors : {1, 2, 13, 338, 10'000}) {
      const auto sizes = tensor_sizes({.bytes = 1 << 20, .tensors = tensors, .dtype = DType::kF32, .kind = kind});
      ASSERT_THAT(sizes, IsOk());
      EXPECT_EQ(sizes->size(), tensors);
      EXPECT_EQ(sum_of(*sizes), (1 << 20) / 4) << tensors;
      std::set<std::string> names;
      for (const TensorSize& size : *sizes) {
        EXPECT_GE(size.elements, 1u);
        names.insert(size.name);
      }
      EXPECT_EQ(names.size(), tensors);
    }
}

TEST(Model, EqualTensorsAreEqual) {
  const auto sizes = tensor_sizes({.bytes = 10'000 * 1024, .tensors = 10'000, .kind = ModelShape::Kind::kEqual});
  ASSERT_THAT(sizes, IsOk());
  for (const TensorSize& size : *sizes) ASSERT_EQ(size.elements, 512u) << size.name;
}

TEST(Model, ADecoderHasLargeAndSmallTensors) {
  const auto sizes = tensor_sizes({.bytes = 1 << 30, .tensors = 338});
  ASSERT_THAT(sizes, IsOk());
  const auto [small, large] = std::ranges::minmax(*sizes, {}, &TensorSize::elements);
  EXPECT_GT(large.elements, 1000 * small.elements);
}

TEST(Model, TooManyTensorsAreRefused) {
  EXPECT_THAT(tensor_sizes({.bytes = 16, .tensors = 9}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too few for 9 tensors")));
}

TEST(Model, EveryElementIsMadeAnewAtAStep) {
  kernels::ThreadPool pool(2);
  absl::StatusOr<Model> model = Model::make({.bytes = 1 << 20, .tensors = 40}, 9, pool);
  ASSERT_THAT(model, IsOk());
  const std::unique_ptr<TensorSource> source = model->source();
  for (const std::uint64_t generation : {1, 2}) {
    ASSERT_TRUE(model->step(generation).ok());
    const auto views = source->views();
    ASSERT_THAT(views, IsOk());
    EXPECT_THAT(Content(9, generation).check(*views, DType::kBF16, 40, 1 << 20), IsOk());
  }
}

}  // namespace
}  // namespace bascule::bench
