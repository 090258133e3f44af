#include <bascule/trainer_ref/ops/adjust_logits.h>

#include <bit>
#include <numeric>

#include "on_device.h"
#include <bascule/trainer_ref/engine/schedule/logit_adjustments.h>

namespace bascule::ref::ops {
namespace {

class AdjustLogits : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { BASCULE_NEEDS_GPUS(1); }
};

struct Wanted {
  LogitAdjustments adjustments;
  std::vector<std::int64_t> tokens;  // the prompt, then the completion
  std::size_t prompt = 0;
};

// Few different tokens, so that they repeat.
Wanted random_request(std::mt19937& random, std::size_t length, std::size_t vocabulary, int kind) {
  Wanted wanted;
  const auto number = [&](double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<double>(low, high)(random));
  };
  for (std::size_t i = 0; i < length; ++i)
    wanted.tokens.push_back(
        static_cast<std::int64_t>(random() % std::min<std::size_t>(vocabulary, 37) * 7919 % vocabulary));
  wanted.prompt = 1 + random() % length;
  if (kind % 2 == 1) wanted.adjustments.repetition_penalty = number(0.5, 2);
  if (kind % 3 == 1) wanted.adjustments.presence_penalty = number(-2, 2);
  if (kind % 5 == 1) wanted.adjustments.frequency_penalty = number(-2, 2);
  TokenBiases bias;
  if (kind % 4 == 1)
    for (const std::int64_t token : wanted.tokens)
      if (bias.size() < 700 && static_cast<std::size_t>(token) + bias.size() < vocabulary)
        bias.push_back({static_cast<std::int32_t>(static_cast<std::size_t>(token) + bias.size()), number(-100, 100)});
  std::sort(bias.begin(), bias.end(), [](const TokenBias& a, const TokenBias& b) { return a.token < b.token; });
  bias.erase(
      std::unique(bias.begin(), bias.end(), [](const TokenBias& a, const TokenBias& b) { return a.token == b.token; }),
      bias.end());
  if (kind % 7 == 1) bias = forbid(bias, {0, wanted.tokens.front(), static_cast<std::int64_t>(vocabulary) - 1});
  wanted.adjustments.bias = std::make_shared<const TokenBiases>(bias);
  return wanted;
}

TEST_P(AdjustLogits, IsTheHostsBitByBit) {
  constexpr int kRows = 24, kPages = 64;  // of a row
  std::mt19937 random(3);
  for (const std::size_t vocabulary : {1U, 64U, 1001U, 151936U}) {
    SCOPED_TRACE(testing::Message() << "vocabulary " << vocabulary);
    RealTensor logits = RealTensor::random(random, kRows * vocabulary, GetParam(), 5);
    std::vector<std::int32_t> pages(kRows * kPages),
        history(static_cast<std::size_t>(kRows * kPages * kPageTokens), -1);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random);
    std::vector<Wanted> requests;
    std::vector<Adjustment> adjustments;
    std::vector<BiasedToken> biased;
    for (int i = 0; i < kRows; ++i) {
      const std::size_t length = 1 + random() % (i % 3 == 0 ? 20 : kPages * kPageTokens);
      const Wanted& wanted = requests.emplace_back(random_request(random, length, vocabulary, i));
      const int row = kRows - 1 - i, table = (i * 5) % kRows;
      for (std::size_t t = 0; t < length; ++t)
        history[static_cast<std::size_t>(pages[static_cast<std::size_t>(table) * kPages + t / kPageTokens]) *
                    kPageTokens +
                t % kPageTokens] = static_cast<std::int32_t>(wanted.tokens[t]);
      const auto biases = wanted.adjustments.biases(0);
      adjustments.push_back({.row = row,
                             .pages = table,
                             .prompt = static_cast<std::int32_t>(wanted.prompt),
                             .tokens = static_cast<std::int32_t>(length),
                             .repetition = wanted.adjustments.repetition_penalty,
                             .presence = wanted.adjustments.presence_penalty,
                             .frequency = wanted.adjustments.frequency_penalty,
                             .first_bias = static_cast<std::int32_t>(biased.size()),
                             .biases = static_cast<std::int32_t>(biases.size())});
      for (const auto& [token, bias] : biases) biased.push_back({token, bias});
    }
    adjustments.push_back({});  // padding
    const Both<float> adjusted(std::vector<float>((kRows + 1) * vocabulary, -123));
    const Both<Adjustment> changes(adjustments);
    const Both<BiasedToken> list(biased);
    const Both<std::int32_t> tokens(history), table(pages);
    ASSERT_CUDA(adjust_logits(adjusted.device(), logits.device(), GetParam(), static_cast<std::int64_t>(vocabulary),
                              {.tokens = tokens.device(), .pages = table.device(), .pages_a_row = kPages},
                              changes.device(), kRows + 1, list.device(), nullptr));
    const std::vector<float> found = adjusted.fetched();
    std::vector<float> row(vocabulary);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t v = 0; v < vocabulary; ++v) row[v] = logits.host()[(kRows - 1 - i) * vocabulary + v];
      const std::span<const std::int64_t> all(requests[i].tokens);
      adjust(row, requests[i].adjustments, all.first(requests[i].prompt), all.subspan(requests[i].prompt));
      std::size_t other = 0;
      for (std::size_t v = 0; v < vocabulary; ++v)
        if (std::bit_cast<std::uint32_t>(row[v]) != std::bit_cast<std::uint32_t>(found[i * vocabulary + v])) {
          if (other++ < 3)
            ADD_FAILURE() << "row " << i << ", token " << v << ": " << found[i * vocabulary + v] << ", expected "
                          << row[v];
        }
      EXPECT_EQ(other, 0U);
    }
    for (std::size_t v = 0; v < vocabulary; ++v) ASSERT_EQ(found[kRows * vocabulary + v], -123) << "padding";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AdjustLogits, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace bascule::ref::ops
