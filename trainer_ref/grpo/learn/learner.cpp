#include <bascule/trainer_ref/grpo/learn/learner.h>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

std::vector<TrainingRow> rows_of(std::span<const CompletionGroup> groups) {
  std::vector<TrainingRow> rows;
  for (const CompletionGroup& group : groups)
    for (const Rollout& rollout : group.rollouts)
      if (rollout.advantage) rows.push_back({&group.prompt, &rollout});
  return rows;
}

}  // namespace

Learner::Learner(Policy policy, const OptimizerOptions& optimizer, const UpdateOptions& update, AfterPart after_part)
    : options_(update),
      after_part_(std::move(after_part)),
      policy_(std::move(policy)),
      optimizer_(policy_.trained(), optimizer) {}

absl::Status Learner::restore(const std::filesystem::path& folder, const RunState& state) {
  return restore_optimizer(folder, state, optimizer_);
}

absl::StatusOr<UpdateStatistics> Learner::update_policy(std::int64_t step, std::span<const CompletionGroup> groups,
                                                        const BeforeWrite& before_write) {
  const std::vector<TrainingRow> rows = rows_of(groups);
  if (rows.empty()) return UpdateStatistics{};
  const std::int64_t before = optimizer_.steps();
  if (policy_.draws()) at::manual_seed(mix(options_.seed + static_cast<std::uint64_t>(step)));
  absl::Status granted;
  const auto may_write = [&] {
    granted = before_write();
    return granted.ok();
  };
  try {
    const UpdateStatistics statistics = ref::update_policy(policy_, reference_ ? &*reference_ : nullptr, optimizer_,
                                                           rows, options_, (step - 1) * options_.optimizer_steps(),
                                                           {.may_write = may_write, .after_part = after_part_});
    if (granted.ok()) return statistics;
    is_whole_ = optimizer_.steps() == before;
    return granted;
  } catch (const c10::Error& error) {
    is_whole_ = optimizer_.steps() == before;
    return device_failed(policy_.device(), error);
  }
}

absl::Status Learner::free_memory() {
  try {
    optimizer_.zero_grad();
    if (policy_.device().is_cuda()) at::getDeviceAllocator(at::kCUDA)->emptyCache();
  } catch (const c10::Error& error) {
    return unavailable("freeing memory on ", policy_.device().str(), ": ", error.what_without_backtrace());
  }
  return absl::OkStatus();
}

absl::Status Learner::save(const std::filesystem::path& folder, const std::filesystem::path& model,
                           RunState state) const {
  state.optimizer_steps = optimizer_.steps();
  const std::int64_t step = state.step;
  try {
    if (!is_finite(policy_.trained()))
      return failed_precondition("the checkpoint of step ", step,
                                 ": expected finite weights, found some that are not, and wrote nothing; continue "
                                 "from an earlier checkpoint with a smaller --learning-rate");
    return save_run(folder, model, policy_, optimizer_, state);
  } catch (const c10::Error& error) {
    return unavailable("the checkpoint of step ", step, ": ", error.what_without_backtrace());
  }
}

}  // namespace bascule::ref
