#include <bascule/trainer_ref/grpo/learner.h>

#include <c10/core/CachingDeviceAllocator.h>

#include <utility>
#include <vector>

#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

std::vector<TrainingRow> rows_of(std::span<const Group> groups) {
  std::vector<TrainingRow> rows;
  for (const Group& group : groups)
    for (const Rollout& rollout : group.rollouts) rows.push_back({&group.prompt, &rollout});
  return rows;
}

}  // namespace

Learner::Learner(Policy policy, const OptimizerOptions& optimizer, const UpdateOptions& update)
    : options_(update), rate_(optimizer), policy_(std::move(policy)), optimizer_(policy_.weights(), optimizer) {}

absl::Status Learner::restore(const std::filesystem::path& folder, const RunState& state) {
  return restore_optimizer(folder, state, optimizer_);
}

absl::StatusOr<UpdateStatistics> Learner::update_policy(std::span<const Group> groups,
                                                        const BeforeWrite& before_write) {
  const std::int64_t before = optimizer_.steps();
  absl::Status granted;
  UpdateOptions options = options_;
  options.may_write = [&] {
    granted = before_write();
    return granted.ok();
  };
  try {
    UpdateStatistics statistics =
        ref::update_policy(policy_, reference_ ? &*reference_ : nullptr, optimizer_, rows_of(groups), options);
    if (statistics.updates > 0) statistics.learning_rate = learning_rate_at(rate_, optimizer_.steps() - 1);
    if (granted.ok()) return statistics;
    is_whole_ = optimizer_.steps() == before;
    return granted;
  } catch (const c10::Error& error) {
    is_whole_ = optimizer_.steps() == before;
    return absl::ResourceExhaustedError(
        cat("training on ", policy_.device().str(), ": ", error.what_without_backtrace(),
            " (--gradient-checkpointing or a smaller --micro-batch-tokens needs less memory; --dry-run "
            "says how much)"));
  }
}

absl::Status Learner::release_memory() {
  try {
    optimizer_.zero_grad();
    if (policy_.device().is_cuda()) at::getDeviceAllocator(at::kCUDA)->emptyCache();
  } catch (const c10::Error& error) {
    return unavailable("releasing memory on ", policy_.device().str(), ": ", error.what_without_backtrace());
  }
  return absl::OkStatus();
}

absl::Status Learner::save(const std::filesystem::path& folder, const std::filesystem::path& model,
                           RunState state) const {
  state.optimizer_steps = optimizer_.steps();
  const std::int64_t step = state.step;
  try {
    return save_run(folder, model, policy_, optimizer_, state);
  } catch (const c10::Error& error) {
    return unavailable("the checkpoint of step ", step, ": ", error.what_without_backtrace());
  }
}

}  // namespace bascule::ref
