#include <bascule/trainer_ref/grpo/update.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace bascule::ref {
namespace {

struct MicroBatch {
  Batch batch;
  at::Tensor old_log_probs;        // undefined: the policy still is the old one
  at::Tensor reference_log_probs;  // undefined without a reference
};

std::vector<MicroBatch> make_micro_batches(const Policy& policy, const Policy* reference,
                                           std::span<const TrainingRow> rows, const UpdateOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<MicroBatch> micro_batches;
  for (std::size_t begin = 0; begin < rows.size(); begin += options.micro_batch) {
    MicroBatch& micro = micro_batches.emplace_back();
    micro.batch = make_batch(rows.subspan(begin, std::min(options.micro_batch, rows.size() - begin)), policy.device());
    if (options.num_iterations > 1) micro.old_log_probs = policy.log_probs(micro.batch, options.temperature);
    if (reference != nullptr) micro.reference_log_probs = reference->log_probs(micro.batch, options.temperature);
  }
  return micro_batches;
}

}  // namespace

UpdateStatistics update_policy(const Policy& policy, const Policy* reference, Optimizer& optimizer,
                               std::span<const TrainingRow> rows, const UpdateOptions& options) {
  const std::vector<MicroBatch> micro_batches = make_micro_batches(policy, reference, rows, options);
  StepShape shape{.completions = static_cast<std::int64_t>(rows.size()),
                  .tokens = 0,
                  .micro_batches = static_cast<std::int64_t>(micro_batches.size())};
  for (const TrainingRow& row : rows) shape.tokens += static_cast<std::int64_t>(row.rollout->token_ids.size());

  UpdateStatistics statistics;
  double kl_sum = 0, clipped = 0, tokens = 0;
  for (std::int64_t iteration = 0; iteration < options.num_iterations; ++iteration) {
    double value = 0, kl = 0, clips = 0, terms = 0;  // of this iteration
    optimizer.zero_grad();
    for (const MicroBatch& micro : micro_batches) {
      const at::Tensor log_probs = policy.log_probs(micro.batch, options.temperature);
      const at::Tensor old = micro.old_log_probs.defined() ? micro.old_log_probs : log_probs.detach();
      const Loss loss = policy_loss({.log_probs = log_probs,
                                     .old_log_probs = old,
                                     .behaviour_log_probs = micro.batch.behaviour_log_probs,
                                     .reference_log_probs = micro.reference_log_probs,
                                     .advantages = micro.batch.advantages,
                                     .completion_tokens = micro.batch.completion_tokens,
                                     .row_of = micro.batch.row_of},
                                    shape, options.loss);
      loss.value.backward();
      value += loss.value.item<double>();
      kl += loss.kl_sum;
      clips += loss.clipped;
      terms += loss.tokens;
    }
    if (!options.may_write()) break;
    const std::int64_t before = optimizer.steps();
    const double grad_norm = optimizer.step(value);
    if (optimizer.steps() == before) {
      ++statistics.skipped;
      continue;
    }
    statistics.loss += value;
    statistics.grad_norm += grad_norm;
    kl_sum += kl;
    clipped += clips;
    tokens += terms;
  }
  const auto taken = static_cast<double>(options.num_iterations - statistics.skipped);
  statistics.loss /= taken;
  statistics.grad_norm /= taken;
  statistics.clip_fraction = clipped / tokens;
  statistics.kl = reference != nullptr ? kl_sum / tokens : std::numeric_limits<double>::quiet_NaN();
  return statistics;
}

}  // namespace bascule::ref
