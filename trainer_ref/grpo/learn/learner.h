// What learns: the policy with its optimizer, and the reference that the divergence is measured from.
//
// Threads: one. What fails on a device comes back as a status.
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
  // `after_part` is UpdateHooks::after_part of every update.
  using AfterPart = std::function<void(std::size_t done, std::size_t of)>;
  Learner(
      Policy policy, const OptimizerOptions& optimizer, const UpdateOptions& update,
      AfterPart after_part = [](std::size_t, std::size_t) {});

  void measure_from(Policy reference) { reference_ = std::move(reference); }
  // Goes on as the run did that wrote `folder`, whose weights the policy has.
  absl::Status restore(const std::filesystem::path& folder, const RunState& state);

  // From the next update on: the run has another end than was known.
  void follow(const OptimizerOptions& schedule) { optimizer_.follow(schedule); }

  // The update of `step`, counted from 1, by all completions of `groups`, which have advantages. `before_write` is
  // called when the gradients are there, each time before the weights change; its error ends the update.
  // RESOURCE_EXHAUSTED: the device failed.
  using BeforeWrite = std::function<absl::Status()>;
  absl::StatusOr<UpdateStatistics> update_policy(
      std::int64_t step, std::span<const CompletionGroup> groups,
      const BeforeWrite& before_write = [] { return absl::OkStatus(); });
  // False: an update failed that had changed some weights. They are those of no step.
  bool is_whole() const { return is_whole_; }

  // Gives back what training holds and nothing needs before the next update: gradients, and what LibTorch keeps to use
  // again. UNAVAILABLE: the device failed.
  absl::Status free_memory();

  // Writes a checkpoint of the run (run_state.h), whose optimizer_steps are the optimizer's. FAILED_PRECONDITION:
  // weights are not finite, and nothing is written.
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
