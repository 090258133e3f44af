#include <bascule/trainer_ref/ops/draw.h>

#include "on_device.h"
#include <bascule/trainer_ref/engine/schedule/sampler.h>

namespace bascule::ref::ops {
namespace {

// The device's draws from rows of logits, and the host's from the same rows.
class DrawTokens : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { BASCULE_NEEDS_GPUS(1); }

  struct Request {
    SamplingParams params;
    double number;
    std::size_t row;
  };

  static Draw draw_of(const Request& request) {
    const bool greedy = request.params.temperature < kGreedyBelow;
    return {.number = request.number,
            .inverse_temperature = greedy ? 0 : static_cast<float>(1 / request.params.temperature),
            .min_p = static_cast<float>(request.params.min_p),
            .top_p = static_cast<float>(request.params.top_p),
            .top_k = static_cast<std::int32_t>(request.params.top_k),
            .row = static_cast<std::int32_t>(request.row),
            .top = static_cast<std::int32_t>(request.params.top_logprobs),
            .raw = request.params.logprobs == LogprobsMode::kRaw};
  }

  // How many of `requests` the device draws like the host. Their other results are compared for each.
  static std::size_t same(RealTensor& logits, std::size_t vocabulary, const std::vector<Request>& requests) {
    std::vector<Draw> wanted;
    for (const Request& request : requests) wanted.push_back(draw_of(request));
    const Both<Draw> draws(wanted);
    const Both<Drawn> drawn(requests.size());
    const Both<TopToken> tops(requests.size() * kMostTop);
    const auto result =
        draw_tokens(drawn.device(), tops.device(), logits.device(), GetParam(), static_cast<std::int64_t>(vocabulary),
                    draws.device(), static_cast<std::int64_t>(requests.size()), nullptr);
    EXPECT_TRUE(result.ok());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<Drawn> found = drawn.fetched();
    const std::vector<TopToken> found_tops = tops.fetched();
    std::size_t equal = 0;
    std::vector<float> row(vocabulary);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Request& request = requests[i];
      for (std::size_t v = 0; v < vocabulary; ++v) row[v] = logits.host()[request.row * vocabulary + v];
      const std::optional<Sample> host = sample(row, request.params, request.number);
      if (!host || found[i].token < 0) {
        equal += !host && found[i].token < 0 ? 1 : 0;
        continue;
      }
      const std::optional<Sample> told = score(row, found[i].token, request.params, request.params.top_logprobs);
      EXPECT_NEAR(found[i].logprob, told->logprob, 1e-4) << "draw " << i;
      if (request.params.top_logprobs > 0) {
        EXPECT_EQ(found[i].rank, told->rank);
        for (std::size_t t = 0; t < told->top.size(); ++t) {
          EXPECT_EQ(found_tops[i * kMostTop + t].token, told->top[t].token) << "draw " << i << ", top " << t;
          EXPECT_NEAR(found_tops[i * kMostTop + t].logprob, told->top[t].logprob, 1e-4);
        }
      }
      equal += found[i].token == host->token ? 1 : 0;
    }
    return equal;
  }

  static std::vector<Request> all_kinds(std::mt19937& random, std::size_t rows, std::size_t count) {
    std::uniform_real_distribution<double> uniform;
    std::vector<Request> requests;
    for (std::size_t i = 0; i < count; ++i) {
      SamplingParams params{.temperature = i % 7 == 0 ? 0 : 0.3 + uniform(random) * 2};
      if (i % 3 == 1) params.top_p = 0.2 + 0.8 * uniform(random);
      if (i % 4 == 1) params.top_k = static_cast<std::int64_t>(1 + random() % 60);
      if (i % 5 == 1) params.min_p = 0.1 * uniform(random);
      if (i % 2 == 1) params.logprobs = LogprobsMode::kRaw;
      if (i % 11 == 1) params.top_logprobs = static_cast<std::int64_t>(1 + random() % 20);
      requests.push_back({params, uniform(random), random() % rows});
    }
    return requests;
  }
};

TEST_P(DrawTokens, AreTheHosts) {
  std::mt19937 random(11);
  for (const std::size_t vocabulary : {15U, 1000U, 32003U, 151936U})
    for (const float spread : {0.5F, 3.0F}) {
      SCOPED_TRACE(testing::Message() << "vocabulary " << vocabulary << ", spread " << spread);
      RealTensor logits = RealTensor::random(random, 4 * vocabulary, GetParam(), spread);
      const std::vector<Request> requests = all_kinds(random, 4, 300);
      // A number may fall on a border between two tokens, more often if there are more tokens.
      EXPECT_GE(same(logits, vocabulary, requests), requests.size() - 6);
    }
}

TEST_P(DrawTokens, OfEqualLogitsGoByTheirIds) {
  constexpr std::size_t kVocabulary = 4096;
  RealTensor logits(kVocabulary, GetParam());  // zeros
  std::vector<Request> requests;
  for (const double number : {0.0, 0.1, 0.5, 0.999})
    for (const double top_p : {1.0, 0.25})
      for (const std::int64_t top_k : {0, 1, 100}) requests.push_back({{.top_k = top_k, .top_p = top_p}, number, 0});
  EXPECT_EQ(same(logits, kVocabulary, requests), requests.size());
}

TEST_P(DrawTokens, OfLogitsThatAreNoNumbersAreNone) {
  constexpr std::size_t kVocabulary = 2000;
  for (const float odd : {NAN, INFINITY, -INFINITY}) {
    std::vector<std::byte> bytes(kVocabulary * size_of(GetParam()));
    std::mt19937 random(1);
    RealTensor logits = RealTensor::random(random, kVocabulary, GetParam());
    logits.host().set(1234, odd);
    Both<std::byte> changed(std::vector<std::byte>(static_cast<std::byte*>(logits.host().data),
                                                   static_cast<std::byte*>(logits.host().data) + bytes.size()));
    ASSERT_EQ(cudaMemcpy(logits.device(), changed.device(), bytes.size(), cudaMemcpyDeviceToDevice), cudaSuccess);
    EXPECT_EQ(same(logits, kVocabulary, {{{}, 0.3, 0}, {{.temperature = 0}, 0.3, 0}, {{.top_k = 5}, 0.3, 0}}), 3U)
        << odd;
  }
}

// Every second draw is from adjusted logits; raw log-probabilities are the model's all the same.
TEST_P(DrawTokens, FromAdjustedLogitsAreTheHosts) {
  std::mt19937 random(13);
  for (const std::size_t vocabulary : {15U, 1000U, 32003U, 151936U}) {
    SCOPED_TRACE(testing::Message() << "vocabulary " << vocabulary);
    constexpr std::size_t kRows = 4;
    RealTensor logits = RealTensor::random(random, kRows * vocabulary, GetParam(), 3.0F);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> numbers(kRows * vocabulary);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i % 7 == 0 ? -INFINITY : normal(random);
    const Both<float> adjusted(numbers);
    const std::vector<Request> requests = all_kinds(random, kRows, 300);
    std::vector<Draw> wanted;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      wanted.push_back(draw_of(requests[i]));
      if (i % 2 == 0) wanted.back().adjusted = static_cast<std::int32_t>(random() % kRows);
    }
    const Both<Draw> draws(wanted);
    const Both<Drawn> drawn(requests.size());
    const Both<TopToken> tops(requests.size() * kMostTop);
    const auto v = static_cast<std::int64_t>(vocabulary), count = static_cast<std::int64_t>(requests.size());
    ASSERT_CUDA(
        draw_tokens(drawn.device(), tops.device(), logits.device(), GetParam(), v, draws.device(), count, nullptr));
    ASSERT_CUDA(draw_adjusted_tokens(drawn.device(), tops.device(), adjusted.device(), logits.device(), GetParam(), v,
                                     draws.device(), count, nullptr));
    const std::vector<Drawn> found = drawn.fetched();
    const std::vector<TopToken> found_tops = tops.fetched();
    std::size_t equal = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto& [params, number, at] = requests[i];
      std::vector<float> raw(vocabulary);
      for (std::size_t id = 0; id < vocabulary; ++id) raw[id] = logits.host()[at * vocabulary + id];
      std::vector<float> from = raw;
      if (const std::int32_t row = wanted[i].adjusted; row >= 0)
        std::copy_n(numbers.begin() + row * static_cast<std::ptrdiff_t>(vocabulary), vocabulary, from.begin());
      const Sample host = *sample(from, raw, params, number);
      const bool is_raw = params.logprobs == LogprobsMode::kRaw;
      const Sample told = *score(is_raw ? raw : from, found[i].token, params, params.top_logprobs);
      EXPECT_NEAR(found[i].logprob, told.logprob, 1e-4) << "draw " << i;
      for (std::size_t t = 0; t < told.top.size(); ++t)
        EXPECT_EQ(found_tops[i * kMostTop + t].token, told.top[t].token) << "draw " << i << ", top " << t;
      EXPECT_EQ(found[i].rank, params.top_logprobs > 0 ? told.rank : 0) << "draw " << i;
      equal += found[i].token == host.token ? 1 : 0;
    }
    EXPECT_GE(equal, requests.size() - 6) << "a number may fall on a border between two tokens";
  }
}

// Each token comes as often as it is likely: 20,000 draws of one row, by the numbers that the engine uses.
TEST_P(DrawTokens, ComeAsOftenAsTheyAreLikely) {
  constexpr std::size_t kVocabulary = 40, kDraws = 20000;
  std::mt19937 random(5);
  RealTensor logits = RealTensor::random(random, kVocabulary, GetParam(), 1.5F);
  std::vector<Draw> wanted;
  Request request{{.temperature = 0.8, .top_p = 0.9}, 0, 0};
  for (std::size_t i = 0; i < kDraws; ++i) {
    request.number = uniform(9, 0, i);
    wanted.push_back(draw_of(request));
  }
  const Both<Draw> draws(wanted);
  const Both<Drawn> drawn(kDraws);
  ASSERT_CUDA(
      draw_tokens(drawn.device(), nullptr, logits.device(), GetParam(), kVocabulary, draws.device(), kDraws, nullptr));
  std::vector<double> found(kVocabulary), expected(kVocabulary);
  for (const Drawn& each : drawn.fetched()) found[static_cast<std::size_t>(each.token)] += 1;
  std::vector<float> row;
  for (std::size_t v = 0; v < kVocabulary; ++v) row.push_back(logits.host()[v]);
  constexpr std::size_t kFine = 200000;
  for (std::size_t i = 0; i < kFine; ++i)
    expected[static_cast<std::size_t>(
        sample(row, {.temperature = 0.8, .top_p = 0.9}, (static_cast<double>(i) + 0.5) / kFine)->token)] +=
        static_cast<double>(kDraws) / kFine;
  double chi_squared = 0;
  int likely = 0;
  for (std::size_t v = 0; v < kVocabulary; ++v) {
    if (expected[v] == 0) {
      EXPECT_EQ(found[v], 0) << v;
      continue;
    }
    chi_squared += (found[v] - expected[v]) * (found[v] - expected[v]) / expected[v];
    ++likely;
  }
  EXPECT_LT(chi_squared, likely + 5 * std::sqrt(2.0 * likely));  // of a chi-squared distribution, plus five deviations
}

INSTANTIATE_TEST_SUITE_P(Types, DrawTokens, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace bascule::ref::ops
