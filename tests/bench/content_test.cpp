#include <bascule/bench/content.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/status.h"

namespace bascule::bench {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

constexpr std::int64_t kElements = 10'000;

struct Tensor {
  explicit Tensor(DType type) : dtype(type), bytes(kElements * size_of(type)) {}
  TensorView view() const {
    return {.name = "weight", .dtype = dtype, .shape = shape, .strides = {}, .data = bytes.data()};
  }
  std::vector<std::int64_t> shape = {kElements};
  DType dtype;
  std::vector<std::byte> bytes;
};

absl::Status check(const Tensor& tensor, std::uint64_t generation, DType trainer_dtype) {
  const TensorView view = tensor.view();
  return Content(1, generation).check({&view, 1}, trainer_dtype, 1, tensor.bytes.size());
}

TEST(Content, IsRightInItsOwnGenerationOnly) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Tensor tensor(dtype);
    Content(1, 5).write("weight", dtype, 0, kElements, tensor.bytes.data());
    EXPECT_THAT(check(tensor, 5, dtype), IsOk());
    EXPECT_THAT(check(tensor, 6, dtype), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("weight")));
  }
}

TEST(Content, FindsOneElementOfAnotherGeneration) {
  Tensor tensor(DType::kF32);
  Content(1, 5).write("weight", DType::kF32, 0, kElements, tensor.bytes.data());
  Content(1, 4).write("weight", DType::kF32, 7'777, 1, tensor.bytes.data() + 4 * 7'777);
  EXPECT_THAT(check(tensor, 5, DType::kF32),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("between elements 4096 and 8192")));
}

TEST(Content, PartsMakeTheSameWhole) {
  Tensor whole(DType::kBF16), parts(DType::kBF16);
  Content(1, 5).write("weight", DType::kBF16, 0, kElements, whole.bytes.data());
  Content(1, 5).write("weight", DType::kBF16, 0, 1'001, parts.bytes.data());
  Content(1, 5).write("weight", DType::kBF16, 1'001, kElements - 1'001, parts.bytes.data() + 2 * 1'001);
  EXPECT_EQ(whole.bytes, parts.bytes);
}

TEST(Content, NumbersAreNeitherZeroNorHuge) {
  Tensor tensor(DType::kF32);
  Content(1, 5).write("weight", DType::kF32, 0, kElements, tensor.bytes.data());
  for (std::size_t i = 0; i < kElements; ++i) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
    ASSERT_GE(std::abs(value), 0.5f) << i;
    ASSERT_LT(std::abs(value), 2.0f) << i;
  }
}

TEST(Content, ExpectsACastToRound) {
  Tensor wide(DType::kF32), slot(DType::kBF16);
  Content(1, 5).write("weight", DType::kF32, 0, kElements, wide.bytes.data());
  for (std::size_t i = 0; i < kElements; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, wide.bytes.data() + 4 * i, 4);
    // The nearer of the two neighbours, computed in halves of the last place.
    const std::uint32_t rest = bits & 0xffff, low = bits >> 16;
    const auto rounded = static_cast<std::uint16_t>(low + (rest > 0x8000 || (rest == 0x8000 && low % 2 == 1) ? 1 : 0));
    std::memcpy(slot.bytes.data() + 2 * i, &rounded, 2);
  }
  EXPECT_THAT(check(slot, 5, DType::kF32), IsOk());
  EXPECT_THAT(check(slot, 5, DType::kBF16), StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

TEST(Content, CountsTensorsAndBytes) {
  Tensor tensor(DType::kF32);
  Content(1, 5).write("weight", DType::kF32, 0, kElements, tensor.bytes.data());
  const TensorView view = tensor.view();
  EXPECT_THAT(Content(1, 5).check({&view, 1}, DType::kF32, 2, tensor.bytes.size()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected 2 tensors")));
}

}  // namespace
}  // namespace bascule::bench
