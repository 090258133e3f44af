// Plan::gather, compared with a naive walk over each tensor.
#include <bascule/transport/plan.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "support/status.h"
#include <bascule/kernels/pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

// A view that LibTorch could have made: a permutation, a slice or an expansion of a storage of random bytes.
struct Strided {
  std::vector<std::byte> storage;
  TensorSpec spec;
  std::vector<std::int64_t> strides;  // empty: contiguous
  std::size_t offset = 0;             // bytes

  TensorView view() const {
    return {.name = spec.name,
            .dtype = spec.dtype,
            .shape = spec.shape,
            .strides = strides,
            .data = storage.data() + offset};
  }
};

Strided random_strided(std::mt19937_64& random, const std::string& name) {
  constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kU8};
  Strided tensor{.storage = {}, .spec = {.name = name, .dtype = kTypes[random() % 4], .shape = {}}, .strides = {}};
  const std::size_t rank = random() % 6;
  for (std::size_t d = 0; d < rank; ++d) tensor.spec.shape.push_back(static_cast<std::int64_t>(random() % 5));
  if (random() % 4 != 0) {
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    tensor.strides.resize(rank);
    std::int64_t stride = 1;
    for (const std::size_t d : order) {
      const std::int64_t gap = random() % 3 == 0 ? 2 : 0;  // sliced out of a larger tensor
      const bool expanded = random() % 5 == 0;
      tensor.strides[d] = expanded ? 0 : stride;
      if (!expanded) stride *= tensor.spec.shape[d] + gap;
    }
    tensor.offset = random() % 3 * size_of(tensor.spec.dtype);
  }
  std::uint64_t elements = element_count(tensor.spec.shape);  // from the first to the farthest one
  if (!tensor.strides.empty()) {
    elements = 1;
    for (std::size_t d = 0; d < rank; ++d)
      if (tensor.spec.shape[d] > 0)
        elements += static_cast<std::uint64_t>((tensor.spec.shape[d] - 1) * tensor.strides[d]);
  }
  tensor.storage.resize(tensor.offset + elements * size_of(tensor.spec.dtype));  // exact, for the sanitizers
  for (std::byte& byte : tensor.storage) byte = static_cast<std::byte>(random());
  return tensor;
}

// The elements in C order.
std::vector<std::byte> naive_gather(const TensorView& tensor) {
  const std::size_t bytes = size_of(tensor.dtype);
  std::vector<std::byte> out;
  for (std::uint64_t element = 0; element < element_count(tensor.shape); ++element) {
    auto rest = static_cast<std::int64_t>(element);
    std::int64_t from = 0, dense = 1;
    for (std::size_t d = tensor.shape.size(); d-- > 0;) {
      from += rest % tensor.shape[d] * (tensor.strides.empty() ? dense : tensor.strides[d]);
      rest /= tensor.shape[d];
      dense *= tensor.shape[d];
    }
    const std::byte* source = tensor.data + from * static_cast<std::int64_t>(bytes);
    out.insert(out.end(), source, source + bytes);
  }
  return out;
}

TEST(Plan, GathersWhatAWalkElementByElementFinds) {
  kernels::ThreadPool pool(2);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Strided> tensors;
    for (std::size_t i = 0; i < 1 + seed % 5; ++i) tensors.push_back(random_strided(random, cat("t", i)));
    std::vector<TensorSpec> specs;
    std::vector<TensorView> views;
    std::vector<const std::byte*> addresses;
    for (const Strided& tensor : tensors) {
      specs.push_back(tensor.spec);
      views.push_back(tensor.view());
      addresses.push_back(tensor.view().data);
    }
    const auto layout = Layout::arrange(specs, {});
    ASSERT_THAT(layout, IsOk());
    const auto plan = Plan::gather(*layout, views);
    ASSERT_THAT(plan, IsOk()) << "seed " << seed;
    std::vector<std::byte> slot(layout->bytes());
    kernels::pack(plan->segments(), addresses, slot, false, pool);
    for (const TensorView& view : views) {
      const std::vector<std::byte> expected = naive_gather(view);
      const Placement& placement = *layout->find(view.name);
      ASSERT_EQ(expected.size(), placement.bytes);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), slot.data() + placement.offset))
          << "seed " << seed << ", tensor " << to_string(view);
    }
  }
}

// The one segment of one tensor, whose elements are never read.
absl::StatusOr<Plan> plan_of(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                             DType from = DType::kF32, DType to = DType::kF32) {
  const auto layout = Layout::arrange({{"w", to, shape}}, {});
  const TensorView view{.name = "w", .dtype = from, .shape = shape, .strides = strides};
  return Plan::gather(*layout, {&view, 1});
}

TEST(Plan, MergesDimensionsThatLieInOneRun) {
  EXPECT_TRUE(plan_of({2, 3, 4}, {})->segments()[0].is_run());
  EXPECT_TRUE(plan_of({2, 3, 4}, {12, 4, 1})->segments()[0].is_run());
  EXPECT_TRUE(plan_of({2, 1, 4}, {4, 77, 1})->segments()[0].is_run()) << "the stride of one element has no meaning";
  EXPECT_TRUE(plan_of({}, {})->segments()[0].is_run());
  EXPECT_TRUE(plan_of({1, 1}, {5, 9})->segments()[0].is_run());
  EXPECT_EQ(plan_of({2, 3, 4}, {1, 8, 2})->segments()[0].rank, 2) << "the inner two are one";
  EXPECT_EQ(plan_of({3, 4}, {0, 0})->segments()[0].rank, 1) << "one element everywhere";
}

TEST(Plan, RefusesMoreSeparateStridesThanAKernelWalks) {
  // Each dimension is one wider than the run below it, so none can be merged.
  std::vector<std::int64_t> shape, strides;
  std::int64_t stride = 1;
  for (std::size_t d = 0; d <= kernels::kMaxRank; ++d) {
    shape.insert(shape.begin(), 2);
    strides.insert(strides.begin(), stride);
    stride *= 3;
  }
  EXPECT_THAT(plan_of(shape, strides), StatusIs(StatusCode::kInvalidArgument,
                                                HasSubstr("tensor w lies in more than 6 separate strides; make it")));
  shape.pop_back(), strides.pop_back();
  EXPECT_THAT(plan_of(shape, strides), IsOk());
}

TEST(Plan, CastsWhereTheLayoutHasAnotherType) {
  const auto plan = plan_of({4}, {}, DType::kF32, DType::kBF16);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->segments()[0].tensor_dtype, DType::kF32);
  EXPECT_EQ(plan->segments()[0].slot_dtype, DType::kBF16);
  EXPECT_THAT(plan_of({4}, {}, DType::kI32, DType::kF32),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("tensor w cannot be cast from I32 to F32")));
}

TEST(Plan, RefusesATensorThatIsNotThereOrHasAnotherShape) {
  const auto layout = Layout::arrange({{"w", DType::kF32, {6}}}, {});
  EXPECT_THAT(Plan::gather(*layout, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("tensor w of the layout was not given")));
  const std::vector<std::int64_t> shape = {3};
  const TensorView view{.name = "w", .dtype = DType::kF32, .shape = shape, .strides = {}};
  EXPECT_THAT(Plan::gather(*layout, {&view, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("tensor w F32 [3] has another shape than w F32 [6]")));
}

}  // namespace
}  // namespace bascule
