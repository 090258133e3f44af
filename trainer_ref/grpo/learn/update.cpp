#include <bascule/trainer_ref/grpo/learn/update.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

namespace bascule::ref {
namespace {

struct MicroBatch {
  Batch batch;
  at::Tensor old_log_probs;        // undefined: the policy is still the old one
  at::Tensor reference_log_probs;  // undefined without a reference
};

// The rows of one optimizer step.
struct MiniBatch {
  StepShape shape;
  bool teaches = true;  // false: no advantage and no divergence moves the weights
  std::vector<MicroBatch> parts;
};

// Sums over the mini-batches that count.
struct Sums {
  double loss = 0, grad_norm = 0, mini_batches = 0;
  double kl = 0, entropy = 0, clipped = 0, weights = 0, capped = 0, tokens = 0;  // of completions' tokens
  double masked = 0, completions = 0;

  Sums& operator+=(const Sums& more) {
    mini_batches += more.mini_batches;
    loss += more.loss;
    grad_norm += more.grad_norm;
    kl += more.kl;
    entropy += more.entropy;
    clipped += more.clipped;
    weights += more.weights;
    capped += more.capped;
    tokens += more.tokens;
    masked += more.masked;
    completions += more.completions;
    return *this;
  }
};

Sums sums_of(const Loss& part, const at::Tensor& entropies) {
  return {.loss = part.value.item<double>(),
          .kl = part.kl_sum,
          .entropy = entropies.sum().item<double>(),
          .clipped = part.clipped,
          .weights = part.weights,
          .capped = part.capped,
          .tokens = part.tokens,
          .masked = part.masked};
}

MiniBatch make_mini_batch(const Policy& policy, const Policy* reference, std::span<const TrainingRow> rows,
                          const UpdateOptions& options) {
  MiniBatch mini;
  for (const auto& part : micro_batches_of(rows, options.micro_batch, options.micro_batch_tokens)) {
    MicroBatch& micro = mini.parts.emplace_back();
    micro.batch = make_batch(part, policy.device());
    if (options.optimizer_steps() > 1) micro.old_log_probs = policy.log_probs(micro.batch, options.temperature);
    if (reference != nullptr) micro.reference_log_probs = reference->log_probs(micro.batch, options.temperature);
  }
  mini.shape = {.completions = static_cast<std::int64_t>(rows.size()),
                .tokens = 0,
                .micro_batches = static_cast<std::int64_t>(mini.parts.size())};
  for (const TrainingRow& row : rows) mini.shape.tokens += row.rollout->learned_tokens();
  mini.teaches = options.loss.beta > 0 || std::any_of(rows.begin(), rows.end(), [](const TrainingRow& row) {
                   return row.rollout->advantage.value_or(0) != 0;
                 });
  return mini;
}

// Makes all of them before the first optimizer step, since they keep log-probabilities of the old policy.
std::vector<MiniBatch> make_mini_batches(const Policy& policy, const Policy* reference,
                                         std::span<const TrainingRow> rows, const UpdateOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<MiniBatch> mini_batches;
  const std::size_t count = std::min(static_cast<std::size_t>(options.mini_batches), rows.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = rows.size() * i / count, end = rows.size() * (i + 1) / count;
    mini_batches.push_back(make_mini_batch(policy, reference, rows.subspan(begin, end - begin), options));
  }
  return mini_batches;
}

// Adds the mini-batch's gradients to the policy's weights, if it teaches anything.
Sums differentiate(const Policy& policy, const MiniBatch& mini, const UpdateOptions& options,
                   const std::function<void()>& after_part) {
  Sums sums{.mini_batches = 1, .completions = static_cast<double>(mini.shape.completions)};
  const at::AutoGradMode gradients(mini.teaches);
  for (const MicroBatch& micro : mini.parts) {
    const auto [log_probs, entropies] = policy.score(micro.batch, options.temperature);
    const Loss loss =
        policy_loss({.log_probs = log_probs,
                     .old_log_probs = micro.old_log_probs.defined() ? micro.old_log_probs : log_probs.detach(),
                     .behaviour_log_probs = micro.batch.behaviour_log_probs,
                     .reference_log_probs = micro.reference_log_probs,
                     .advantages = micro.batch.advantages,
                     .completion_tokens = micro.batch.completion_tokens,
                     .row_of = micro.batch.row_of},
                    mini.shape, options.loss);
    if (mini.teaches) loss.value.backward();
    sums += sums_of(loss, entropies);
    after_part();
  }
  return sums;
}

}  // namespace

UpdateStatistics update_policy(const Policy& policy, const Policy* reference, Optimizer& optimizer,
                               std::span<const TrainingRow> rows, const UpdateOptions& options,
                               std::optional<std::int64_t> schedule_step, const UpdateHooks& hooks) {
  optimizer.zero_grad();  // frees the memory of the last update's gradients
  const std::vector<MiniBatch> mini_batches = make_mini_batches(policy, reference, rows, options);
  UpdateStatistics statistics;
  for (const TrainingRow& row : rows) statistics.tokens += options.num_iterations * row.tokens();
  Sums sums;
  const auto passes = static_cast<std::size_t>(options.num_iterations);
  std::size_t done = 0, parts = 0;  // micro-batches
  for (const MiniBatch& mini : mini_batches) parts += passes * mini.parts.size();
  for (std::size_t i = 0; i < passes * mini_batches.size(); ++i) {
    const MiniBatch& mini = mini_batches[i % mini_batches.size()];
    optimizer.zero_grad();
    Sums step = differentiate(policy, mini, options, [&] { hooks.after_part(++done, parts); });
    if (mini.teaches) {
      if (!hooks.may_write()) break;
      const std::int64_t before = optimizer.steps();
      const std::int64_t place = schedule_step.value_or(before - static_cast<std::int64_t>(i));
      step.grad_norm = optimizer.step(step.loss, place + static_cast<std::int64_t>(i));
      if (optimizer.steps() == before) {
        ++statistics.skipped;
        continue;
      }
      ++statistics.updates;
      statistics.learning_rate = optimizer.learning_rate();
    }
    sums += step;
  }
  statistics.loss = sums.loss / sums.mini_batches;
  statistics.grad_norm = sums.grad_norm / sums.mini_batches;
  statistics.entropy = sums.entropy / sums.tokens;
  statistics.clip_fraction = sums.clipped / sums.tokens;
  statistics.importance_mean = sums.weights / sums.tokens;
  statistics.importance_capped = sums.capped / sums.tokens;
  statistics.masked = sums.masked / sums.completions;
  if (reference != nullptr) statistics.kl = sums.kl / sums.tokens;
  return statistics;
}

}  // namespace bascule::ref
