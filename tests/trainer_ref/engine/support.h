// Small random checkpoints of the model's tests, run by the engine's own parts.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trainer_ref/engine/scheduler.h"
#include "trainer_ref/engine/torch_runner.h"

namespace bascule::ref {

// Tests run side by side: LibTorch's threads would only wait for each other.
inline ModelConfig one_thread(ModelConfig config) {
  at::set_num_threads(1);
  return config;
}

struct Asked {
  std::vector<std::int64_t> prompt;
  std::int64_t max_tokens = 8;
  SamplingParams sampling{.temperature = 0};
  int n = 1;
};

// One fixture's model with a cache of `blocks`.
class TestEngine {
 public:
  TestEngine(const std::string& fixture, std::size_t blocks, SchedulerLimits limits, DType dtype = DType::kF32)
      : folder_(std::filesystem::path(BASCULE_FIXTURES) / fixture),
        config_(one_thread(*read_config(folder_))),
        pool_(blocks),
        scheduler_(limits, pool_),
        runner_(config_, {.blocks = blocks, .dtype = dtype == DType::kF32 ? at::kFloat : at::kBFloat16},
                *ServedWeights::from_checkpoint(folder_, config_, dtype)) {}

  // All at once; the completions in the order asked for, the samples of one prompt side by side.
  Scheduler::Sequences run(const std::vector<Asked>& requests) {
    for (std::size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
    Scheduler::Sequences ended;
    runner_.commit();
    while (scheduler_.running() + scheduler_.waiting() > 0) {
      const Step step = scheduler_.schedule();
      const auto samples = runner_.run(step);
      EXPECT_TRUE(samples.ok()) << samples.status();
      if (!samples.ok()) break;
      for (auto& sequence : scheduler_.complete(step, *samples, 0)) ended.push_back(std::move(sequence));
    }
    std::sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) {
      return std::pair(a->request, a->choice) < std::pair(b->request, b->choice);
    });
    return ended;
  }

  const ModelConfig& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }
  const Scheduler& scheduler() const { return scheduler_; }
  BlockPool& pool() { return pool_; }

 private:
  void add(RequestId request, const Asked& asked) {
    std::unique_ptr<Sequence> lead;
    for (int i = 0; i < asked.n; ++i) {
      auto sequence = std::make_unique<Sequence>();
      sequence->request = request;
      sequence->choice = static_cast<std::uint64_t>(i);
      sequence->sampling = asked.sampling;
      sequence->max_tokens = asked.max_tokens;
      sequence->tokens = asked.prompt;
      sequence->prompt_tokens = asked.prompt.size();
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
};

}  // namespace bascule::ref
