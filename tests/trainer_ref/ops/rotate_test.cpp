#include <bascule/trainer_ref/ops/rotate.h>

#include <numeric>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

struct Case {
  DType dtype;
  int width;
  bool norms;
};

class Rotate : public ::testing::TestWithParam<Case> {};

TEST_P(Rotate, TurnsNormalisesAndStoresAsItsTwinDoes) {
  BASCULE_NEEDS_GPUS(1);
  const auto [dtype, width, norms] = GetParam();
  constexpr int kHeads = 14, kKeyHeads = 2, kPages = 12, kTokens = 50;
  constexpr std::size_t kAll = kHeads + 2 * kKeyHeads;
  const auto w = static_cast<std::size_t>(width);
  std::mt19937 random(7);

  std::vector<std::int64_t> positions(kTokens), places(kPages * kPageTokens);
  for (std::int64_t& position : positions) position = static_cast<std::int64_t>(random() % 32768);
  std::iota(places.begin(), places.end(), std::int64_t{0});
  std::shuffle(places.begin(), places.end(), random);
  places.resize(kTokens);
  std::vector<float> frequencies(w / 2);
  for (std::size_t i = 0; i < w / 2; ++i)
    frequencies[i] = std::pow(1e6F, -2 * static_cast<float>(i) / static_cast<float>(width));
  const Both<std::int64_t> at(positions), to(places);
  const Both<float> omega(frequencies);

  RealTensor turns(kTokens * w, DType::kF32);
  ASSERT_CUDA(
      make_turns(static_cast<float*>(turns.device()), at.device(), omega.device(), kTokens, width, dtype, nullptr));
  plain::make_turns(static_cast<float*>(turns.host().data), positions.data(), frequencies.data(), kTokens, width,
                    dtype);
  EXPECT_LE(turns.difference(), dtype == DType::kF32 ? 1e-6 : 0.008);

  RealTensor input = RealTensor::random(random, kTokens * kAll * w, dtype);
  RealTensor update = RealTensor::random(random, kTokens * kAll * w, dtype);
  RealTensor query_norm = RealTensor::random(random, w, dtype), key_norm = RealTensor::random(random, w, dtype);
  RealTensor query(kTokens * kHeads * w, dtype);
  RealTensor keys = RealTensor::random(random, kPages * kKeyHeads * kPageTokens * w, dtype);
  RealTensor values = RealTensor::random(random, kPages * kKeyHeads * kPageTokens * w, dtype);
  for (const bool updates : {false, true}) {
    SCOPED_TRACE(updates ? "updated" : "");
    RotateInput given{.query_key_value = input.device(),
                      .update = updates ? update.device() : nullptr,
                      .turns = static_cast<float*>(turns.device()),
                      .places = to.device(),
                      .query_norm = norms ? query_norm.device() : nullptr,
                      .key_norm = norms ? key_norm.device() : nullptr,
                      .tokens = kTokens,
                      .heads = kHeads,
                      .epsilon = 1e-6F};
    ASSERT_CUDA(rotate(query.device(), {keys.device(), values.device(), dtype, kKeyHeads, width}, given, nullptr));
    given.query_key_value = input.host().data;
    given.update = updates ? update.host().data : nullptr;
    given.turns = static_cast<float*>(turns.host().data);
    given.places = places.data();
    given.query_norm = norms ? query_norm.host().data : nullptr;
    given.key_norm = norms ? key_norm.host().data : nullptr;
    plain::rotate(query.host().data, {keys.host().data, values.host().data, dtype, kKeyHeads, width}, given);
    EXPECT_LE(query.difference(), tolerance(dtype));
    EXPECT_LE(keys.difference(), tolerance(dtype));  // places without a token keep their values
    EXPECT_EQ(values.difference(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Rotate,
                         ::testing::Values(Case{DType::kF32, 64, false}, Case{DType::kF32, 128, true},
                                           Case{DType::kBF16, 64, true}, Case{DType::kBF16, 128, false},
                                           Case{DType::kBF16, 128, true}, Case{DType::kF32, 24, true}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.dtype)) + "of" + std::to_string(info.param.width) +
                                  (info.param.norms ? "normalised" : "");
                         });

}  // namespace
}  // namespace bascule::ref::ops
