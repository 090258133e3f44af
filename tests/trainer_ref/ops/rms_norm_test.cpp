#include <bascule/trainer_ref/ops/rms_norm.h>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

class RmsNorm : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { BASCULE_NEEDS_GPUS(1); }
};

TEST_P(RmsNorm, SumsAndNormalisesAsItsTwinDoes) {
  std::mt19937 random(1);
  for (const std::int64_t channels : {8, 64, 1024, 1536, 5120, 8200})
    for (const std::int64_t tokens : {1, 7, 130})
      for (const int terms : {0, 1, 2}) {
        const bool adds = terms > 0, updates = terms > 1;
        SCOPED_TRACE(testing::Message() << tokens << " tokens of " << channels << ", " << terms << " added");
        const auto count = static_cast<std::size_t>(tokens * channels);
        RealTensor residual = RealTensor::random(random, count, GetParam(), 3);
        RealTensor added = RealTensor::random(random, count, GetParam());
        RealTensor update = RealTensor::random(random, count, GetParam());
        RealTensor weight = RealTensor::random(random, static_cast<std::size_t>(channels), GetParam(), 0.2F, 1);
        RealTensor out(count, GetParam());
        ASSERT_CUDA(rms_norm(out.device(), residual.device(), adds ? added.device() : nullptr,
                             updates ? update.device() : nullptr, weight.device(), GetParam(), tokens, channels, 1e-6F,
                             nullptr));
        plain::rms_norm(out.host(), residual.host(), adds ? added.host() : plain::Reals{},
                        updates ? update.host() : plain::Reals{}, weight.host(), tokens, channels, 1e-6F);
        EXPECT_EQ(residual.difference(), 0);
        EXPECT_LE(out.difference(), tolerance(GetParam()));
      }
}

TEST_P(RmsNorm, MayWriteOverWhatIsAdded) {
  std::mt19937 random(2);
  RealTensor residual = RealTensor::random(random, 3 * 256, GetParam());
  RealTensor added = RealTensor::random(random, 3 * 256, GetParam());
  RealTensor weight = RealTensor::random(random, 256, GetParam());
  ASSERT_CUDA(rms_norm(added.device(), residual.device(), added.device(), nullptr, weight.device(), GetParam(), 3, 256,
                       1e-5F, nullptr));
  plain::rms_norm(added.host(), residual.host(), added.host(), {}, weight.host(), 3, 256, 1e-5F);
  EXPECT_LE(added.difference(), tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, RmsNorm, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace bascule::ref::ops
