// Compares the trainer's computation on a GPU in bfloat16 with float32, and measures its memory there.
#include <c10/core/CachingDeviceAllocator.h>

#include "support.h"
#include "support/devices/torch_gpu.h"
#include <bascule/trainer_ref/grpo/learn/memory_plan.h>
#include <bascule/trainer_ref/model/causal_attention.h>

namespace bascule::ref {
namespace {

class ComputeOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_TORCH_GPU();
    gpu_ = *test::torch_gpu();
  }
  at::Device gpu_ = at::kCPU;
};

// Query, key and value of attention, with their gradients, with grouped heads and rows of uneven lengths.
std::vector<at::Tensor> attended(const PackedRows& rows, const std::vector<at::Tensor>& inputs, at::ScalarType type) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.to(type).detach().requires_grad_());
  CausalAttention attention(rows);
  const at::Tensor output = attention.attend(0, leaves[0], leaves[1], leaves[2]);
  output.to(at::kFloat).square().sum().backward();
  std::vector<at::Tensor> found{output.detach().to(at::kFloat)};
  for (const at::Tensor& leaf : leaves) found.push_back(leaf.grad().to(at::kFloat));
  return found;
}

TEST_F(ComputeOnGpu, OneKernelOverPackedRowsIsAttentionRowByRow) {
  const PackedRows rows = pack_rows({1, 70, 3, 200, 129}, gpu_);
  const auto random = [&](std::int64_t heads) {
    return at::randn({rows.tokens(), heads, 64}, at::TensorOptions(gpu_)).to(at::kBFloat16);
  };
  const std::vector<at::Tensor> inputs{random(8), random(2), random(2)};
  const std::vector<at::Tensor> wanted = attended(rows, inputs, at::kFloat);  // padded, in float32
  const std::vector<at::Tensor> found = attended(rows, inputs, at::kBFloat16);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double share = ((found[i] - wanted[i]).abs().max() / wanted[i].abs().max()).item<double>();
    EXPECT_LT(share, 0.02) << "of " << (i == 0 ? "the output" : "the gradient of input ") << i;
  }
}

TEST_F(ComputeOnGpu, BFloat16IsTheCpusFloat32ToItsRounding) {
  const Sampled sampled;
  const auto scored = [&](at::Device device, const ComputeOptions& compute) {
    const Policy policy = *random_policy(tiny(), 3, device, compute);
    const at::Tensor log_probs = policy.log_probs(make_batch(sampled.rows(), device), 0.7);
    log_probs.sum().backward();
    WeightMap found{{"", log_probs.detach().cpu()}};
    for (const auto& [name, weight] : policy.weights()) found[name] = weight.grad().cpu();
    return found;
  };
  const WeightMap wanted = scored(at::kCPU, {});
  for (const bool checkpoints : {false, true}) {
    const WeightMap found = scored(gpu_, {.dtype = at::kBFloat16, .checkpoints_layers = checkpoints});
    EXPECT_LT((found.at("") - wanted.at("")).abs().max().item<double>(), 0.05);
    for (const auto& [name, tensor] : wanted) {
      ASSERT_EQ(found.at(name).scalar_type(), at::kFloat) << name;
      EXPECT_GT(at::cosine_similarity(found.at(name).flatten(), tensor.flatten(), 0).item<double>(), 0.98) << name;
    }
  }
}

TEST_F(ComputeOnGpu, AnAdapterOverFrozenBFloat16IsTheCpusFloat32ToItsRounding) {
  const Sampled sampled;
  const auto scored = [&](at::Device device, const ComputeOptions& compute, double dropout) {
    const Policy random = *random_policy(tiny(), 3, device);
    WeightMap weights;
    for (const auto& [name, tensor] : random.weights()) weights[name] = tensor.detach().to(compute.dtype);
    const Policy base = *Policy::over(tiny(), std::move(weights), Policy::Gradients::kNone, compute);
    Adapter adapter = *Adapter::make(tiny(), *new_lora_config({.rank = 4, .dropout = dropout}), 5);
    at::Generator generator = at::detail::createCPUGenerator(6);
    for (auto& [name, factors] : adapter.modules) factors.b.normal_(0, 0.1, generator);
    const Policy policy = *base.adapted(std::move(adapter));
    at::manual_seed(9);
    const at::Tensor log_probs = policy.log_probs(make_batch(sampled.rows(), device), 0.7);
    log_probs.sum().backward();
    WeightMap found{{"", log_probs.detach().cpu()}};
    for (const auto& [name, weight] : policy.trained()) found[name] = weight.grad().cpu();
    return found;
  };
  const WeightMap wanted = scored(at::kCPU, {}, 0), kept = scored(gpu_, {.dtype = at::kBFloat16}, 0);
  EXPECT_LT((kept.at("") - wanted.at("")).abs().max().item<double>(), 0.05);
  for (const auto& [name, tensor] : wanted) {
    ASSERT_EQ(kept.at(name).scalar_type(), at::kFloat) << name;
    EXPECT_GT(at::cosine_similarity(kept.at(name).flatten(), tensor.flatten(), 0).item<double>(), 0.97) << name;
  }
  const WeightMap once = scored(gpu_, {.dtype = at::kBFloat16}, 0.5);
  const WeightMap again = scored(gpu_, {.dtype = at::kBFloat16, .checkpoints_layers = true}, 0.5);
  for (const auto& [name, tensor] : once)  // other masks would give quite other gradients
    EXPECT_GT(at::cosine_similarity(again.at(name).flatten(), tensor.flatten(), 0).item<double>(), 0.999) << name;
}

struct PlannedOnGpu {
  bool checkpoints = false;
  NewLora lora = {.rank = 0};  // rank 0: all weights are trained
};

class PlanOnGpu : public ComputeOnGpu, public ::testing::WithParamInterface<PlannedOnGpu> {};

TEST_P(PlanOnGpu, IsRightToATenth) {
  ModelConfig config = tiny();
  config.vocab_size = 32'000;
  config.hidden_size = 1024;
  config.intermediate_size = 3072;
  config.num_hidden_layers = 8;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 64;
  config.query_key_norm = true;
  config.architecture = "Qwen3ForCausalLM";
  config.max_position_embeddings = 1024;
  const std::vector<std::int64_t> prompt(256, 3);
  const Rollout rollout = Sampled::rollout(std::vector<std::int64_t>(768, 5), 1);
  const std::vector<TrainingRow> rows(16, {&prompt, &rollout});
  MemoryNeed need{.config = config,
                  .compute = {.dtype = at::kBFloat16, .checkpoints_layers = GetParam().checkpoints},
                  .device = at::kCUDA,
                  .batch = largest_batch({.rows = 16,
                                          .tokens = {.shortest_prompt = 256, .longest_prompt = 256, .completion = 768},
                                          .most_rows = 64,
                                          .most_tokens = 8192})};
  c10::CachingDeviceAllocator::DeviceStats statistics;
  {
    Policy policy = *random_policy(config, 1, gpu_, need.compute);
    if (const NewLora& lora = GetParam().lora; lora.rank > 0) {
      WeightMap frozen;
      for (const auto& [name, tensor] : policy.weights()) frozen[name] = tensor.detach().to(at::kBFloat16);
      policy = *Policy::over(config, std::move(frozen), Policy::Gradients::kNone, need.compute);
      Adapter adapter = *Adapter::make(config, *new_lora_config(lora), 1);
      need.adapted = adapter.adapted();
      need.dropout = lora.dropout;
      policy = *policy.adapted(std::move(adapter));
    }
    Optimizer optimizer(policy.trained(), {});
    at::getDeviceAllocator(at::kCUDA)->resetPeakStats(gpu_.index());
    update_policy(policy, nullptr, optimizer, rows, {.micro_batch_tokens = 8192});
    statistics = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(gpu_.index());
  }
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto measured = static_cast<double>(statistics.allocated_bytes[all].peak);
  EXPECT_NEAR(static_cast<double>(plan_memory(need).peak_bytes()), measured, 0.1 * measured)
      << to_string(plan_memory(need));
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlanOnGpu,
                         ::testing::Values(PlannedOnGpu{false}, PlannedOnGpu{true}, PlannedOnGpu{false, {.rank = 16}},
                                           PlannedOnGpu{true, {.rank = 16}},
                                           PlannedOnGpu{false, {.rank = 16, .targets = {"q_proj", "v_proj"}}},
                                           PlannedOnGpu{false, {.rank = 16, .dropout = 0.1}},
                                           PlannedOnGpu{true, {.rank = 16, .dropout = 0.1}}));

}  // namespace
}  // namespace bascule::ref
