#include <bascule/trainer_ref/ops/silu_mul.h>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

class SiluMul : public ::testing::TestWithParam<DType> {};

TEST_P(SiluMul, IsItsTwins) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937 random(1);
  for (const std::int64_t inner : {8, 96, 3072, 4864})
    for (const std::int64_t tokens : {1, 5, 300})
      for (const bool updates : {false, true}) {
        SCOPED_TRACE(testing::Message() << tokens << " tokens of " << inner << (updates ? ", updated" : ""));
        const auto count = static_cast<std::size_t>(tokens * inner);
        RealTensor gate_up = RealTensor::random(random, 2 * count, GetParam(), 4);
        RealTensor update = RealTensor::random(random, 2 * count, GetParam());
        RealTensor out(count, GetParam());
        ASSERT_CUDA(silu_mul(out.device(), gate_up.device(), updates ? update.device() : nullptr, GetParam(), tokens,
                             inner, nullptr));
        plain::silu_mul(out.host(), gate_up.host(), updates ? update.host() : plain::Reals{}, tokens, inner);
        EXPECT_LE(out.difference(), tolerance(GetParam()));
      }
}

INSTANTIATE_TEST_SUITE_P(Types, SiluMul, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace bascule::ref::ops
