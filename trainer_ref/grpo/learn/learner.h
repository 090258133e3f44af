// The policy with its optimizer, and the reference from which the divergence is measured.
//
// Threads: one. Failures of the device are returned as a status.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/grpo/learn/optimizer.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/learn/run_state.h>
#include <bascule/trainer_ref/grpo/learn/update.h>

namespace bascule::ref {

class Learner {
 public:
  // `after_part` becomes UpdateHooks::after_part of every update.
  using AfterPart = std::function<void(std::size_t done, std::size_t of)>;
  Learner(
      Policy policy, const OptimizerOptions& optimizer, const UpdateOptions& update,
      AfterPart after_part = [](std::size_t, std::size_t) {});

  void measure_from(Policy reference) { reference_ = std::move(reference); }
  // Restores the state of the run that wrote `folder`. The policy must have that folder's weights.
  absl::Status restore(const std::filesystem::path& folder, const RunState& state);

  // Call this once the run's end is known: the new schedule applies from the next update.
  void follow(const OptimizerOptions& schedule) { optimizer_.follow(schedule); }

  // Updates the policy in `step`, counted from 1, with the completions of `groups` that have an advantage. Without any,
  // changes nothing. The others are not in the loss, nor in the numbers that it is divided by. Calls `before_write`
  // each time before the weights change, once the gradients are computed; its error ends the update. Returns
  // RESOURCE_EXHAUSTED if the device failed.
  using BeforeWrite = std::function<absl::Status()>;
  absl::StatusOr<UpdateStatistics> update_policy(
      std::int64_t step, std::span<const CompletionGroup> groups,
      const BeforeWrite& before_write = [] { return absl::OkStatus(); });
  // Returns false if an update failed after it had changed some weights, so that they belong to no step.
  bool is_whole() const { return is_whole_; }

  // Frees what is not needed before the next update: gradients, and memory that LibTorch keeps for reuse. Returns
  // UNAVAILABLE if the device failed.
  absl::Status free_memory();

  // Writes a checkpoint of the run (run_state.h), and sets its optimizer_steps. Returns FAILED_PRECONDITION, and writes
  // nothing, if weights are not finite.
  absl::Status save(const std::filesystem::path& folder, const std::filesystem::path& model, RunState state) const;

  const Policy& policy() const { return policy_; }

 private:
  UpdateOptions options_;
  AfterPart after_part_;
  Policy policy_;
  std::optional<Policy> reference_;
  Optimizer optimizer_;
  bool is_whole_ = true;
};

}  // namespace bascule::ref
