#include <bascule/trainer_ref/grpo/dry_run.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/learn/trial_update.h>
#include <bascule/trainer_ref/grpo/options/memory_plan_of.h>
#include <bascule/trainer_ref/grpo/options/starting_adapter.h>
#include <bascule/trainer_ref/grpo/run/progress.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Returns the cheapest change with which the run takes at most `most` bytes.
std::string advice_for(const TrainFlags& flags, const RunPlan& plan, MemoryNeed need, std::int64_t most) {
  const auto fits = [&] { return plan_memory(need).peak_bytes() <= most; };
  if (!need.compute.checkpoints_layers) {
    need.compute.checkpoints_layers = true;
    if (fits()) return "add --gradient-checkpointing";
  }
  const std::string checkpointed = flags.compute.options.checkpoints_layers ? "" : "add --gradient-checkpointing and ";
  UpdateRows rows = update_rows_of(flags, plan);
  rows.most_tokens = need.batch.tokens;
  while (rows.most_tokens > need.batch.row_tokens) {
    rows.most_tokens = std::max(need.batch.row_tokens, rows.most_tokens / 2);
    need.batch = largest_batch(rows);
    if (fits()) return cat(checkpointed, "give --micro-batch-tokens=", rows.most_tokens);
  }
  if (need.compute.dtype == at::kFloat) {
    need.compute.dtype = at::kBFloat16;
    if (fits()) return cat(checkpointed, "give --train-dtype=bf16 and --micro-batch-tokens=", rows.most_tokens);
  }
  return "no flag helps: give a smaller model, a smaller --max-tokens, or a larger device";
}

// Random weights and tokens, with two of the largest micro-batches: the second adds to gradients, as all but the first
// do.
absl::StatusOr<TrialShape> trial_of(const TrainFlags& flags, const RunPlan& plan, const MemoryNeed& need) {
  const LargestBatch& batch = need.batch;
  TrialShape shape{.config = need.config,
                   .compute = need.compute,
                   .device = flags.compute.device,
                   .rows = batch.rows * std::min<std::int64_t>(batch.count, 2),
                   .row_tokens = batch.row_tokens,
                   .prompt_tokens = plan.rows.longest_prompt,
                   .has_reference = need.has_reference,
                   .update = flags.learn.update};
  shape.update.num_iterations = shape.update.mini_batches = 1;
  if (flags.lora.on) {
    BASCULE_ASSIGN(shape.adapter, starting_adapter(flags, plan.start.model));
  }
  return shape;
}

// Returns how many rows to try: on a CPU, so many that the trial takes a few seconds; 0 if one row takes longer.
std::int64_t rows_to_try(const TrialShape& shape) {
  if (!shape.device.is_cpu()) return shape.rows;
  constexpr double kMostOperations = 1e11;
  double weights = 0;
  for (const TensorSpec& spec : weight_specs(shape.config, DType::kF32))
    weights += static_cast<double>(element_count(spec.shape));
  const double operations_per_row = 6 * weights * static_cast<double>(shape.row_tokens);
  return std::min(shape.rows, static_cast<std::int64_t>(kMostOperations / operations_per_row));
}

// Logs how fast updates are, and how long those that are left take if each has the longest rows.
absl::Status try_out(const TrainFlags& flags, const PreparedRun& run, const MemoryNeed& need, const MemoryPlan& memory,
                     const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(TrialShape shape, trial_of(flags, run.plan, need));
  shape.rows = rows_to_try(shape);
  if (shape.rows == 0) {
    log(cat("no update was tried: on ", flags.compute.device.str(), " one row of this model takes more than seconds"));
    return absl::OkStatus();
  }
  BASCULE_ASSIGN(const TrialTimes times, try_updates(shape, /*warm_ups=*/1, /*repeat=*/1));
  const double tokens_per_second = static_cast<double>(shape.rows * shape.row_tokens) / times.seconds.front();
  std::string line =
      cat("tried on ", flags.compute.device.str(), " with random weights: ", with_commas(tokens_per_second),
          " tokens per second through an update");
  if (times.peak)
    line += cat("; ", gib(times.peak->allocated_bytes), " at the peak, planned ",
                gib(memory.peak_bytes_of_libtorch() + (need.shares_base ? memory.parts.front().bytes : 0)),
                " without slots");
  log(line);
  const double tokens_per_step = static_cast<double>(need.batch.tokens_of_update);
  // More than one optimizer step needs the old policy's log-probabilities: a third of a pass.
  const double passes =
      static_cast<double>(flags.learn.update.num_iterations) + (flags.learn.update.optimizer_steps() > 1 ? 1.0 / 3 : 0);
  const double seconds_per_step = passes * tokens_per_step / tokens_per_second;
  const std::int64_t steps = run.fitted.steps - run.plan.start.resumed.step;
  const double seconds = seconds_per_step * static_cast<double>(steps);
  log(cat("so an update takes at most ", precise(seconds_per_step), ", and the updates of ", steps,
          steps == 1 ? " step" : " steps", " take at most ", seconds < 1 ? precise(seconds) : for_people(seconds),
          flags.supervised ? ""
                           : "; rollouts, rewards and evaluations take further time, which a run estimates after its "
                             "first step"));
  return absl::OkStatus();
}

}  // namespace

absl::Status dry_run(const TrainFlags& flags, StartPoint start, const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(const PreparedRun run, prepare_run(flags, std::move(start), flags.engines.sync));
  BASCULE_ASSIGN(const MemoryNeed need, memory_need_of(flags, run.plan));
  const MemoryPlan memory = plan_memory(need);
  log(cat("micro-batches of at most ", need.batch.tokens, " tokens, ", need.batch.completion_tokens,
          " of them of completions; if all rows are the longest: ", need.batch.rows, " rows each, and ",
          need.batch.count, " micro-batches per update"));
  for (const MemoryPart& part : memory.parts) log(absl::StrFormat("%12s  %s", gib(part.bytes), part.name));
  log(absl::StrFormat("%12s  in all, at the peak of an update", gib(memory.peak_bytes())));

  if (!flags.compute.is_device_open) {
    log(cat(flags.compute.device.str(), " was not checked"));
    return absl::OkStatus();
  }
  const std::int64_t free = free_bytes_on(flags.compute.device);
  log(absl::StrFormat("%12s  is free on %s", gib(free), flags.compute.device.str()));
  // LibTorch keeps blocks that do not fit the next use, and a GPU's context takes some memory.
  const std::int64_t most = free - free / 16;
  if (memory.peak_bytes() > most)
    return absl::ResourceExhaustedError(
        cat("this run takes ", gib(memory.peak_bytes()), " on ", flags.compute.device.str(), ", which has ", gib(free),
            " free, a sixteenth of which is reserved; ", advice_for(flags, run.plan, need, most)));
  return try_out(flags, run, need, memory, log);
}

}  // namespace bascule::ref
