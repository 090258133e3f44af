// Compares the policy, its optimizer and its checkpoints on a GPU with the same on the CPU.
#include "support.h"
#include "support/devices/torch_gpu.h"

namespace bascule::ref {
namespace {

class OnGpu : public Saved {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_TORCH_GPU();
    gpu_ = *test::torch_gpu();
  }
  at::Device gpu_ = at::kCPU;
};

TEST_F(OnGpu, AnUpdateIsTheCpusToRounding) {
  const Sampled sampled;
  const UpdateOptions options{.loss = {.kind = LossKind::kDapo, .beta = 0.1}, .num_iterations = 3, .micro_batch = 2};
  std::vector<UpdateStatistics> found;
  std::vector<at::Tensor> log_probs;  // of each row's tokens, with the weights after the update
  for (const at::Device device : {at::Device(at::kCPU), gpu_}) {
    const Policy start = policy(device), trained = policy(device);
    Optimizer optimizer(trained.weights(), {.learning_rate = 1e-3});
    found.push_back(update_policy(trained, &start, optimizer, sampled.rows(), options));
    for (const auto& [name, tensor] : trained.weights()) ASSERT_EQ(tensor.device(), device) << name;
    for (const auto& [name, tensor] : optimizer.moments()) ASSERT_EQ(tensor.device(), device) << name;
    ASSERT_GT(distance(start, trained), 1e-4);
    log_probs.push_back(trained.log_probs(make_batch(sampled.rows(), device), 1).detach().to(at::kCPU));
  }
  // Not closer, since AdamW's first steps follow the sign of each gradient, even if it is nearly 0.
  EXPECT_NEAR(found[1].loss, found[0].loss, 1e-4);
  EXPECT_NEAR(found[1].kl, found[0].kl, 0.02 * found[0].kl);
  EXPECT_NEAR(found[1].grad_norm, found[0].grad_norm, 1e-3 * found[0].grad_norm);
  EXPECT_LT((log_probs[1] - log_probs[0]).abs().max().item<double>(), 5e-3);
}

TEST_F(OnGpu, ARunGoesOnExactly) {
  const absl::StatusOr<ModelConfig> config = read_config(BASCULE_DEMO_MODEL);
  ASSERT_TRUE(config.ok()) << config.status();
  const Sampled sampled;
  const Policy straight = *random_policy(*config, 1, gpu_);
  const OptimizerOptions rate{.learning_rate = 1e-3, .weight_decay = 0.1, .warmup_steps = 10};
  Optimizer optimizer(straight.weights(), rate);
  for (int i = 0; i < 2; ++i) update_policy(straight, nullptr, optimizer, sampled.rows(), {});
  const RunState state{.step = 2, .seed = 9, .optimizer_steps = optimizer.steps()};
  const absl::Status saved = save_run(folder_ / "step_2", folder_, straight, optimizer, state);
  ASSERT_TRUE(saved.ok()) << saved;

  const absl::StatusOr<Policy> resumed = Policy::read(folder_ / "step_2", Policy::Gradients::kTracked, gpu_);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  ASSERT_EQ(resumed->device(), gpu_);
  ASSERT_EQ(distance(straight, *resumed), 0);
  Optimizer restored(resumed->weights(), rate);
  const absl::Status filled = restore_optimizer(folder_ / "step_2", state, restored);
  ASSERT_TRUE(filled.ok()) << filled;
  for (int i = 0; i < 2; ++i) {
    update_policy(straight, nullptr, optimizer, sampled.rows(), {});
    update_policy(*resumed, nullptr, restored, sampled.rows(), {});
  }
  EXPECT_EQ(distance(straight, *resumed), 0);
}

}  // namespace
}  // namespace bascule::ref
