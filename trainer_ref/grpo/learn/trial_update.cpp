#include <bascule/trainer_ref/grpo/learn/trial_update.h>

#include <ATen/ATen.h>

#include <chrono>
#include <optional>
#include <random>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Prompts and completions to which rows point.
struct Rollouts {
  std::vector<std::vector<std::int64_t>> prompts;
  std::vector<Rollout> rollouts;

  explicit Rollouts(const TrialShape& shape) {
    std::mt19937_64 random(1);
    const auto tokens = [&](std::int64_t count) {
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < count; ++i)
        ids.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape.config.vocab_size)));
      return ids;
    };
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      prompts.push_back(tokens(shape.prompt_tokens));
      Rollout& rollout = rollouts.emplace_back();
      rollout.token_ids = tokens(shape.row_tokens - shape.prompt_tokens);
      rollout.log_probs.assign(rollout.token_ids.size(), -12.0f);
      rollout.advantage = row % 2 == 0 ? 1 : -1;
    }
  }
  std::vector<TrainingRow> rows() const {
    std::vector<TrainingRow> rows;
    for (std::size_t i = 0; i < rollouts.size(); ++i) rows.push_back({&prompts[i], &rollouts[i]});
    return rows;
  }
};

// Draws weights on the device: a trial's policy need not be the same on every device.
absl::StatusOr<Policy> random_policy_on(const TrialShape& shape, Policy::Gradients gradients, at::ScalarType dtype) {
  WeightMap weights;
  for (const TensorSpec& spec : weight_specs(shape.config, DType::kF32)) {
    const at::TensorOptions on_device = at::TensorOptions(shape.device).dtype(dtype);
    weights[spec.name] = spec.name.ends_with("norm.weight") ? at::ones(spec.shape, on_device)
                                                            : at::empty(spec.shape, on_device).normal_(0, 0.02);
  }
  return Policy::over(shape.config, std::move(weights), gradients, shape.compute);
}

absl::StatusOr<Policy> trial_policy(const TrialShape& shape) {
  if (!shape.adapter) return random_policy_on(shape, Policy::Gradients::kTracked, at::kFloat);
  BASCULE_ASSIGN(const Policy base, random_policy_on(shape, Policy::Gradients::kNone, shape.compute.dtype));
  return base.adapted(*shape.adapter);
}

void wait_for(const Policy& policy) {  // until the device has finished all work
  policy.trained().begin()->second.detach().flatten().narrow(0, 0, 1).item<float>();
}

}  // namespace

absl::StatusOr<TrialTimes> try_updates(const TrialShape& shape, int warm_ups, int repeat) {
  const Rollouts rollouts(shape);
  const std::vector<TrainingRow> rows = rollouts.rows();
  TrialTimes times;
  try {
    BASCULE_ASSIGN(const Policy policy, trial_policy(shape));
    std::optional<Policy> reference;
    if (shape.has_reference && shape.adapter) {
      reference = policy.without_adapter();
    } else if (shape.has_reference) {
      BASCULE_ASSIGN(reference, random_policy_on(shape, Policy::Gradients::kNone, shape.compute.dtype));
    }
    Optimizer optimizer(policy.trained(), {.learning_rate = 1e-6});
    forget_peak(shape.device);  // LibTorch knows the device only now
    for (int i = 0; i < warm_ups + repeat; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const UpdateStatistics update =
          update_policy(policy, reference ? &*reference : nullptr, optimizer, rows, shape.update);
      wait_for(policy);
      if (update.skipped > 0) return absl::InternalError("an update had gradients that are not finite");
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (i >= warm_ups) times.seconds.push_back(taken.count());
    }
  } catch (const c10::Error& error) {
    return device_failed(shape.device, error);
  }
  times.peak = peak_on(shape.device);
  return times;
}

}  // namespace bascule::ref
