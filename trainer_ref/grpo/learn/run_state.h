// Checkpoints of a run: a folder step_N in Hugging Face's layout, or adapter_step_N in PEFT's, that also holds the
// state for an exact resume.
//
//   step_40/  config.json  model.safetensors (F32)  tokenizer.json  …   a normal checkpoint
//   adapter_step_40/  adapter_config.json  adapter_model.safetensors    a folder of PEFT
//             optimizer.safetensors                                     moments of AdamW
//             trainer_state.json                                        {"step": 40, "seed": 7, "optimizer_steps": 40,
//             …}
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/optimizer.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/run/run_config.h>

namespace bascule::ref {

struct RunState {
  std::int64_t step = 0;  // the last one that was trained
  std::uint64_t seed = 0;
  std::int64_t optimizer_steps = 0;
  RunConfig run_config = {};
};

// Writes the policy, or its adapter alone, to `folder`, whole or not at all. If the folder exists already (because the
// run was resumed at an earlier step), it is replaced. The older folder stays until the new one is on disk; if the
// process dies between the two renames, it remains as .step_N.old-PID. Config and tokenizer come from `model`, which
// may be the older folder.
absl::Status save_run(const std::filesystem::path& folder, const std::filesystem::path& model, const Policy& policy,
                      const Optimizer& optimizer, const RunState& state);

// Reads trainer_state.json, and checks all tensor files in the folder against the fingerprints in it. DATA_LOSS names a
// file that has changed. For a checkpoint without a state, the error says how to start a run from it.
absl::StatusOr<RunState> read_run_state(const std::filesystem::path& folder);

// Restores into `optimizer` the state in `folder`. The optimizer must be new, and its policy read from `folder`; the
// state goes to that policy's device.
absl::Status restore_optimizer(const std::filesystem::path& folder, const RunState& state, Optimizer& optimizer);

}  // namespace bascule::ref
