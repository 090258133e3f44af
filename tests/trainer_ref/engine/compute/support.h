// Small random checkpoints of the model's tests, run by the engine's own parts.
#pragma once

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trainer_ref/engine/schedule/plain_adjust.h"
#include <bascule/trainer_ref/engine/compute/adapter_weights.h>
#include <bascule/trainer_ref/engine/compute/torch_runner.h>
#include <bascule/trainer_ref/engine/schedule/scheduler.h>
#include <bascule/trainer_ref/model/causal_attention.h>

namespace bascule::ref {

// Tests run in parallel, so LibTorch's threads would only wait for each other.
inline ModelConfig one_thread(ModelConfig config) {
  at::set_num_threads(1);
  return config;
}

struct TestRequest {
  std::vector<std::int64_t> prompt;
  std::int64_t max_tokens = 8;
  SamplingParams sampling{.temperature = 0};
  int n = 1;
  std::optional<std::int64_t> prompt_logprobs{};
  AdapterId adapter = kNoAdapter;
};

inline std::vector<std::int64_t> random_prompt(std::mt19937& random, std::size_t length, std::int64_t vocabulary) {
  std::vector<std::int64_t> tokens(length);
  for (std::int64_t& token : tokens) token = static_cast<std::int64_t>(random() % static_cast<unsigned>(vocabulary));
  return tokens;
}

// Prompts from one token to several blocks, of all lengths that matter to padding and chunks.
inline std::vector<TestRequest> mixed_requests(std::int64_t vocabulary) {
  std::mt19937 random(11);
  std::vector<TestRequest> requests;
  for (const std::size_t length : {1, 2, 5, 15, 16, 17, 31, 33, 48, 70, 90, 3})
    requests.push_back({random_prompt(random, length, vocabulary), 20});
  requests.push_back({requests[8].prompt, 20});  // a prefix that was computed already
  requests.push_back({requests[9].prompt, 12, {.temperature = 0}, 3});
  return requests;
}

// The same requests, three of four with something that changes logits, in all combinations; a further one with
// siblings.
inline std::vector<std::pair<TestRequest, PlainAdjustments>> adjusted_requests(std::int64_t vocabulary) {
  std::mt19937 random(12);
  std::vector<std::pair<TestRequest, PlainAdjustments>> requests;
  for (TestRequest& request : mixed_requests(vocabulary)) {
    const std::size_t kind = requests.size();
    PlainAdjustments wanted;
    if (kind % 4 == 1 || kind % 8 == 2) wanted.repetition = 1.3;
    if (kind % 4 == 2 || kind % 8 == 1) wanted = {.repetition = wanted.repetition, .presence = 0.7, .frequency = -0.4};
    if (kind % 4 == 3 || kind % 3 == 1) {
      for (int i = 0; i < 9; ++i) wanted.bias[static_cast<std::int64_t>(random()) % vocabulary] = 2.0 - i;
      wanted.min_tokens = 7;
      for (std::int64_t id = 0; id < vocabulary; id += 2) wanted.ends.push_back(id);
    }
    if (kind % 4 != 0) request.sampling.adjustments = wanted.made();
    if (kind % 4 == 0) wanted = {};
    request.sampling.logprobs = kind % 2 == 0 ? LogprobsMode::kRaw : LogprobsMode::kProcessed;
    requests.emplace_back(std::move(request), std::move(wanted));
  }
  requests.push_back(requests[5]);
  requests.back().first.n = 3;
  return requests;
}

inline std::vector<TestRequest> first_of(const std::vector<std::pair<TestRequest, PlainAdjustments>>& requests) {
  std::vector<TestRequest> all;
  for (const auto& [request, wanted] : requests) all.push_back(request);
  return all;
}

// Logits [T, V] of all tokens, by the simplest pass on the CPU.
inline at::Tensor cpu_logits(const Decoder& decoder, const std::vector<std::int64_t>& tokens) {
  const c10::InferenceMode no_gradients;
  const auto length = static_cast<std::int64_t>(tokens.size());
  CausalAttention attention(pack_rows({length}));
  return decoder.logits(
      decoder.forward(at::tensor(at::IntArrayRef(tokens), at::kLong), at::arange(length, at::kLong), attention));
}

// Expects each greedy token to be the likeliest one of the CPU's logits, adjusted in the plainest way, or to be below
// it by at most `tolerance` of the largest logit; and its logprob to be as far from the CPU's at most, in the request's
// mode.
inline void expect_adjusted(const Decoder& decoder, const Sequence& sequence, const PlainAdjustments& wanted,
                            double tolerance) {
  const at::Tensor logits = cpu_logits(decoder, sequence.tokens).to(at::kFloat).contiguous();
  const double margin = tolerance * logits.abs().max().item<double>();
  for (std::size_t t = 0; t < sequence.generated(); ++t) {
    const at::Tensor row = logits[static_cast<std::int64_t>(sequence.prompt_tokens + t) - 1];
    const std::vector<double> adjusted = wanted.of({row.const_data_ptr<float>(), static_cast<std::size_t>(row.numel())},
                                                   sequence.prompt(), sequence.completion().first(t));
    const std::int64_t token = sequence.completion()[t];
    const double highest = *std::max_element(adjusted.begin(), adjusted.end());
    EXPECT_GE(adjusted[static_cast<std::size_t>(token)], highest - margin)
        << "request " << sequence.request << ", choice " << sequence.choice << ", token " << t;
    const bool is_raw = sequence.sampling.logprobs == LogprobsMode::kRaw;
    const at::Tensor told = is_raw ? row.to(at::kDouble) : at::tensor(at::ArrayRef<double>(adjusted), at::kDouble);
    EXPECT_NEAR(sequence.samples[t].logprob, told.log_softmax(-1)[token].item<double>(), 2 * margin)
        << "request " << sequence.request << ", token " << t;
  }
}

// A TestEngine's device and weights; by default the checkpoint's on the CPU.
struct TestPlace {
  Place place{};
  std::unique_ptr<GraphRecorder> recorder{};
  std::unique_ptr<ServedWeights> weights{};
};

// One fixture's model with a cache of `blocks`.
class TestEngine {
 public:
  TestEngine(const std::string& fixture, std::size_t blocks, SchedulerLimits limits, DType dtype = DType::kF32,
             TestPlace where = {})
      : folder_(std::filesystem::path(BASCULE_FIXTURES) / fixture),
        config_(one_thread(*read_config(folder_))),
        dtype_(dtype == DType::kF32 ? at::kFloat : at::kBFloat16),
        place_(where.place),
        pool_(blocks),
        scheduler_(limits, pool_),
        runner_(config_,
                {.blocks = blocks,
                 .max_adapters = 8,
                 .dtype = dtype_,
                 .place = where.place,
                 .recorder = std::move(where.recorder),
                 .most_rows = static_cast<std::int64_t>(limits.max_batch),
                 .most_blocks = static_cast<std::int64_t>(blocks),
                 .scored_logits = 7 * static_cast<std::size_t>(config_.vocab_size)},
                where.weights ? std::move(where.weights)
                              : *ServedWeights::from_checkpoint(folder_, config_, dtype, where.place)) {}

  // Runs all requests at once. Returns the completions in their order, with the samples of one prompt side by side.
  Scheduler::Sequences run(const std::vector<TestRequest>& requests) {
    for (std::size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
    Scheduler::Sequences ended;
    runner_.commit();
    std::optional<Step> ahead;
    while (scheduler_.running() + scheduler_.waiting() > 0 || ahead) {
      Step step;
      if (ahead) {
        step = *std::exchange(ahead, std::nullopt);
      } else {
        step = scheduler_.schedule();
        start(step);
      }
      if (runner_.runs_ahead()) ahead = scheduler_.plan_behind(step);
      if (ahead) start(*ahead);
      auto outputs = runner_.finish();
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      if (!outputs.ok()) break;
      for (auto& sequence : scheduler_.complete(step, *outputs, {}, ahead ? &*ahead : nullptr))
        ended.push_back(std::move(sequence));
    }
    std::sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) {
      return std::pair(a->request, a->choice) < std::pair(b->request, b->choice);
    });
    return ended;
  }

  // Serves the adapter of a folder or an endpoint as `id`.
  absl::Status load(AdapterId id, const std::string& source, std::int64_t max_rank = 64) {
    TorchAdapterLoader loader({.config = config_,
                               .max_rank = max_rank,
                               .dtype = dtype_,
                               .place = place_,
                               .worker = "engine",
                               .on_pending = {},
                               .log = {}});
    BASCULE_ASSIGN(std::unique_ptr<AdapterWeights> weights, loader.open(source));
    BASCULE_TRY(runner_.set_adapter(id, std::move(weights)));
    scheduler_.serve(id, 0, 0);
    return absl::OkStatus();
  }

  const ModelConfig& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }
  const Scheduler& scheduler() const { return scheduler_; }
  std::uint64_t steps() const { return steps_; }
  BlockPool& pool() { return pool_; }
  TorchRunner& runner() { return runner_; }

 private:
  void start(const Step& step) {
    runner_.start(step);
    ++steps_;
  }
  void add(RequestId request, const TestRequest& asked) {
    std::unique_ptr<Sequence> lead;
    std::shared_ptr<PromptScores> scores;
    if (asked.prompt_logprobs) scores = std::make_shared<PromptScores>(PromptScores{*asked.prompt_logprobs, {}});
    for (int i = 0; i < asked.n; ++i) {
      auto sequence = std::make_unique<Sequence>();
      sequence->request = request;
      sequence->choice = static_cast<std::uint64_t>(i);
      sequence->adapter = asked.adapter;
      sequence->sampling = asked.sampling;
      sequence->max_tokens = asked.max_tokens;
      sequence->tokens = asked.prompt;
      sequence->prompt_tokens = asked.prompt.size();
      sequence->prompt_scores = scores;
      if (lead) {
        lead->siblings.push_back(std::move(sequence));
      } else {
        lead = std::move(sequence);
      }
    }
    scheduler_.add(std::move(lead));
  }

  std::filesystem::path folder_;
  ModelConfig config_;
  at::ScalarType dtype_;
  Place place_;
  BlockPool pool_;
  Scheduler scheduler_;
  TorchRunner runner_;
  std::uint64_t steps_ = 0;
};

}  // namespace bascule::ref
