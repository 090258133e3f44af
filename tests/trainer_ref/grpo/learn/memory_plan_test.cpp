#include <bascule/trainer_ref/grpo/learn/memory_plan.h>

#include <numeric>
#include <optional>

#include "counting_allocator.h"
#include "support.h"

namespace bascule::ref {
namespace {

std::int64_t bytes_of(const MemoryPlan& plan, std::string_view part) {
  for (const MemoryPart& found : plan.parts)
    if (found.name == part) return found.bytes;
  return 0;
}

// The shape of Qwen3-0.6B.
ModelConfig qwen3() {
  ModelConfig config;
  config.architecture = "Qwen3ForCausalLM";
  config.vocab_size = 151'936;
  config.hidden_size = 1024;
  config.intermediate_size = 3072;
  config.num_hidden_layers = 28;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.query_key_norm = true;
  config.tie_word_embeddings = true;
  return config;
}

constexpr RowTokens kRow{.shortest_prompt = 256, .longest_prompt = 256, .completion = 768};

MemoryNeed qwen3_need() {
  return {.config = qwen3(),
          .compute = {.dtype = at::kBFloat16, .checkpoints_layers = true},
          .device = at::kCUDA,
          .batch = largest_batch({.rows = 64, .tokens = kRow, .most_rows = 64, .most_tokens = 16'384})};
}

constexpr std::int64_t kQwen3Weights = 596'049'920;

TEST(MemoryPlan, TheLargestBatchIsOfTheLongestRows) {
  const LargestBatch all = largest_batch({.rows = 64, .tokens = kRow, .most_rows = 64, .most_tokens = 0});
  EXPECT_EQ(all.tokens, 65'536);
  EXPECT_EQ(all.count, 1);
  const LargestBatch by_tokens = largest_batch({.rows = 64, .tokens = kRow, .most_rows = 64, .most_tokens = 16'500});
  EXPECT_EQ(by_tokens.rows, 16);
  EXPECT_EQ(by_tokens.tokens, 16'500) << "shorter rows fill it up";
  EXPECT_EQ(by_tokens.completion_tokens, 12'375);
  EXPECT_EQ(by_tokens.count, 4);
  EXPECT_EQ(largest_batch({.rows = 64, .tokens = kRow, .most_rows = 64, .most_tokens = 100}).tokens, 1024)
      << "a longer row is alone";
  EXPECT_EQ(largest_batch({.rows = 10, .tokens = kRow, .most_rows = 4, .most_tokens = 0}).count, 3);
}

TEST(MemoryPlan, LongerCompletionsNeverTakeLess) {
  MemoryNeed need = qwen3_need();
  std::int64_t before = 0;
  for (const std::int64_t completion : {100, 1000, 7'900, 8'100, 16'000, 20'000}) {
    need.batch = largest_batch({.rows = 64,
                                .tokens = {.shortest_prompt = 50, .longest_prompt = 256, .completion = completion},
                                .most_rows = 64,
                                .most_tokens = 16'384});
    const std::int64_t peak = plan_memory(need).peak_bytes();
    EXPECT_GE(peak, before) << completion;
    before = peak;
  }
  EXPECT_EQ(largest_batch({.rows = 2,
                           .tokens = {.shortest_prompt = 100, .longest_prompt = 300, .completion = 100},
                           .most_rows = 2,
                           .most_tokens = 0})
                .completion_tokens,
            400)
      << "as if all had the shortest prompt";
}

TEST(MemoryPlan, WhatHoldsWeightsIsFourBytesEach) {
  const MemoryPlan plan = plan_memory(qwen3_need());
  EXPECT_EQ(bytes_of(plan, "f32 weights"), 4 * kQwen3Weights);
  EXPECT_EQ(bytes_of(plan, "AdamW's moments"), 8 * kQwen3Weights);
  EXPECT_EQ(bytes_of(plan, "gradients"), 4 * kQwen3Weights + 4 * 151'936 * 1024) << "and the head's, in progress";
  EXPECT_EQ(bytes_of(plan, "reference"), 0);
  EXPECT_EQ(bytes_of(plan, "slots"), 0);
}

TEST(MemoryPlan, AReferenceAndSlotsHaveTheirOwnTypes) {
  MemoryNeed need = qwen3_need();
  need.has_reference = true;
  need.slots = 2;
  need.slot_weight_bytes = 2;
  const MemoryPlan plan = plan_memory(need);
  EXPECT_EQ(bytes_of(plan, "reference"), 2 * kQwen3Weights);
  EXPECT_EQ(bytes_of(plan, "slots"), 4 * kQwen3Weights);
  EXPECT_EQ(plan.peak_bytes(), plan_memory(qwen3_need()).peak_bytes() + 6 * kQwen3Weights);
}

TEST(MemoryPlan, CheckpointedLayersKeepOneInputEach) {
  const std::int64_t checkpointed = bytes_of(plan_memory(qwen3_need()), "activations (checkpointed)");
  EXPECT_GT(checkpointed, 28LL * 16'384 * 1024 * 2);
  EXPECT_LT(checkpointed, 28LL * 16'384 * 1024 * 2 + 16'384LL * 100'000);
  MemoryNeed kept = qwen3_need();
  kept.compute.checkpoints_layers = false;
  EXPECT_GT(bytes_of(plan_memory(kept), "activations"), 10 * checkpointed);
}

TEST(MemoryPlan, LogProbabilitiesStayBelowAGigabyteWhateverTheTokens) {
  for (const std::int64_t tokens : {1024, 16'384, 262'144}) {
    MemoryNeed need = qwen3_need();
    need.batch = {.rows = 1, .tokens = tokens, .completion_tokens = tokens};
    EXPECT_LT(bytes_of(plan_memory(need), "log-probabilities"), 1'000'000'000);
  }
}

TEST(MemoryPlan, SaysItsPartsInOneLine) {
  const std::string text = to_string(plan_memory(qwen3_need()));
  EXPECT_THAT(text, ::testing::HasSubstr("GiB: f32 weights 2.22, AdamW's moments 4.44, gradients 2.80, activations"));
}

// What an update allocates in host memory in f32. With one key head per query head, attention keeps what the plan says.
class MeasuredPlan : public ::testing::TestWithParam<bool> {
 protected:
  static ModelConfig config() {
    ModelConfig config = tiny();
    config.vocab_size = 512;
    config.hidden_size = 64;
    config.intermediate_size = 160;
    config.num_hidden_layers = 6;
    config.num_attention_heads = config.num_key_value_heads = 4;
    config.head_dim = 16;
    config.max_position_embeddings = 2048;
    return config;
  }
  static MemoryNeed need_for(const LargestBatch& batch) {
    return {.config = config(), .compute = {.checkpoints_layers = GetParam(), .logit_chunk = 16}, .batch = batch};
  }
  static double measured(const MemoryNeed& need, std::span<const TrainingRow> rows, const UpdateOptions& options) {
    CountingAllocator counter;
    const Policy policy = *random_policy(need.config, 1, at::kCPU, need.compute);
    std::optional<Policy> reference;
    if (need.has_reference) reference = *random_policy(need.config, 2, at::kCPU, need.compute);
    Optimizer optimizer(policy.weights(), {});
    counter.begin_anew();
    for (int updates = 0; updates < 2; ++updates)
      update_policy(policy, reference ? &*reference : nullptr, optimizer, rows, options);
    return static_cast<double>(counter.peak());
  }
};

TEST_P(MeasuredPlan, IsRightToATenth) {
  const std::vector<std::int64_t> prompt(100, 3);
  const Rollout rollout = Sampled::rollout(std::vector<std::int64_t>(60, 5), 1);
  const std::vector<TrainingRow> rows(8, {&prompt, &rollout});
  const MemoryNeed need =
      need_for(largest_batch({.rows = 8,
                              .tokens = {.shortest_prompt = 100, .longest_prompt = 100, .completion = 60},
                              .most_rows = 4,
                              .most_tokens = 0}));
  const double found = measured(need, rows, {.micro_batch = 4});
  EXPECT_NEAR(found, static_cast<double>(plan_memory(need).peak_bytes()), 0.1 * found) << to_string(plan_memory(need));
}

// When the reference computes, memory has nothing from this update, only what the last one left.
TEST_P(MeasuredPlan, HoldsWithAReference) {
  const std::vector<std::int64_t> prompt(60, 3);
  const Rollout rollout = Sampled::rollout(std::vector<std::int64_t>(200, 5), 1);
  const std::vector<TrainingRow> rows(2, {&prompt, &rollout});
  MemoryNeed need = need_for(largest_batch({.rows = 2,
                                            .tokens = {.shortest_prompt = 60, .longest_prompt = 60, .completion = 200},
                                            .most_rows = 64,
                                            .most_tokens = 0}));
  need.config.vocab_size = 8'000;  // so that gradients weigh more than activations
  need.has_reference = true;
  EXPECT_LT(measured(need, rows, {.loss = {.beta = 0.1}}), 1.02 * static_cast<double>(plan_memory(need).peak_bytes()))
      << to_string(plan_memory(need));
}

// One row is far longer than the others in its micro-batch: attention must not pad them all to its length.
TEST_P(MeasuredPlan, HoldsWhateverTheLengthsOfRows) {
  const std::vector<std::int64_t> prompt(4, 3);
  const Rollout longest = Sampled::rollout(std::vector<std::int64_t>(1000, 5), 1);
  std::vector<Rollout> shorter;
  for (std::size_t tokens = 2; tokens < 34; ++tokens)
    shorter.push_back(Sampled::rollout(std::vector<std::int64_t>(tokens, 6), -1));
  std::vector<TrainingRow> rows{{&prompt, &longest}};
  for (const Rollout& each : shorter) rows.push_back({&prompt, &each});
  const MemoryNeed need =
      need_for(largest_batch({.rows = 33,
                              .tokens = {.shortest_prompt = 4, .longest_prompt = 4, .completion = 1000},
                              .most_rows = 64,
                              .most_tokens = 1800}));
  EXPECT_LT(measured(need, rows, {.micro_batch_tokens = 1800}),
            1.1 * static_cast<double>(plan_memory(need).peak_bytes()));
}

INSTANTIATE_TEST_SUITE_P(Checkpointing, MeasuredPlan, ::testing::Bool());

}  // namespace
}  // namespace bascule::ref
