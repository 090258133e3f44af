// Small random checkpoints of the model's tests, run by the engine's own parts.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/compute/torch_runner.h>
#include <bascule/trainer_ref/engine/schedule/scheduler.h>

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
        pool_(blocks),
        scheduler_(limits, pool_),
        runner_(config_,
                {.blocks = blocks,
                 .dtype = dtype == DType::kF32 ? at::kFloat : at::kBFloat16,
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
  BlockPool pool_;
  Scheduler scheduler_;
  TorchRunner runner_;
  std::uint64_t steps_ = 0;
};

}  // namespace bascule::ref
