#include <bascule/trainer_ref/grpo/dry_run.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/learn/trial_update.h>
#include <bascule/trainer_ref/grpo/run/progress.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// The slots that lie where the trainer computes, beside its own weights.
absl::Status add_slots(const TrainOptions& options, MemoryNeed& need) {
  if (options.supervised) return absl::OkStatus();
  std::string url = options.sync;
  if (url.empty() && options.spawn.engines > 0) url = endpoint_in("/private", options.spawn, options.device.str());
  if (url.empty()) return absl::OkStatus();
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(url));
  const bool on_device = endpoint.scheme == "cuda-ipc";
  if (on_device != options.device.is_cuda() || endpoint.slots == 1) return absl::OkStatus();
  need.slots = endpoint.slots;
  need.slot_weight_bytes = endpoint.wire_dtype.value_or(DType::kF32) == DType::kF32 ? 4 : 2;
  return absl::OkStatus();
}

UpdateRows rows_of(const TrainOptions& options) {
  const auto problems = static_cast<std::int64_t>(options.prompts_per_step);
  const std::int64_t rows = options.supervised ? problems : problems * options.group_size;
  const std::int64_t mini_batches = options.supervised ? 1 : std::min(options.update.mini_batches, rows);
  return {.rows = rows,
          .tokens = options.rows,
          .most_rows =
              std::min(static_cast<std::int64_t>(options.update.micro_batch), (rows + mini_batches - 1) / mini_batches),
          .most_tokens = options.update.micro_batch_tokens};
}

// The first change, the cheapest first, with which the run takes at most `most` bytes.
std::string advice_for(const TrainOptions& options, MemoryNeed need, std::int64_t most) {
  const auto fits = [&] { return plan_memory(need).peak_bytes() <= most; };
  if (!need.compute.checkpoints_layers) {
    need.compute.checkpoints_layers = true;
    if (fits()) return "add --gradient-checkpointing";
  }
  const std::string checkpointed = options.compute.checkpoints_layers ? "" : "add --gradient-checkpointing and ";
  UpdateRows rows = rows_of(options);
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

absl::StatusOr<MemoryNeed> need_of(const TrainOptions& options) {
  MemoryNeed need{.compute = options.compute,
                  .device = options.device.type(),
                  .has_reference = !options.supervised && options.needs_reference()};
  BASCULE_ASSIGN(need.config, read_config(options.model));
  need.batch = largest_batch(rows_of(options));
  BASCULE_TRY(add_slots(options, need));
  return need;
}

// Random weights and tokens, two of the largest micro-batches: the second finds gradients, as all but the first do.
TrialShape trial_of(const TrainOptions& options, const MemoryNeed& need) {
  const LargestBatch& batch = need.batch;
  TrialShape shape{.config = need.config,
                   .compute = need.compute,
                   .device = options.device,
                   .rows = batch.rows * std::min<std::int64_t>(batch.count, 2),
                   .row_tokens = batch.row_tokens,
                   .prompt_tokens = options.rows.longest_prompt,
                   .has_reference = need.has_reference,
                   .update = options.update};
  shape.update.num_iterations = shape.update.mini_batches = 1;
  return shape;
}

// On a CPU as many rows as take seconds; 0: not one does.
std::int64_t rows_to_try(const TrialShape& shape) {
  if (!shape.device.is_cpu()) return shape.rows;
  constexpr double kMostOperations = 1e11;
  double weights = 0;
  for (const TensorSpec& spec : weight_specs(shape.config, DType::kF32))
    weights += static_cast<double>(element_count(spec.shape));
  const double operations_a_row = 6 * weights * static_cast<double>(shape.row_tokens);
  return std::min(shape.rows, static_cast<std::int64_t>(kMostOperations / operations_a_row));
}

// How fast updates are, and how long all of them take, where each has the longest rows.
absl::Status try_out(const TrainOptions& options, const MemoryNeed& need, const MemoryPlan& plan,
                     const std::function<void(std::string_view)>& log) {
  TrialShape shape = trial_of(options, need);
  shape.rows = rows_to_try(shape);
  if (shape.rows == 0) {
    log(cat("no update was tried: on ", options.device.str(), " one row of this model takes more than seconds"));
    return absl::OkStatus();
  }
  BASCULE_ASSIGN(const TrialTimes times, try_updates(shape, /*warm_ups=*/1, /*repeat=*/1));
  const double tokens_a_second = static_cast<double>(shape.rows * shape.row_tokens) / times.seconds.front();
  std::string line = cat("tried on ", options.device.str(), " with random weights: ", with_commas(tokens_a_second),
                         " tokens a second through an update");
  if (times.peak)
    line += cat("; ", gib(times.peak->allocated_bytes), " at the peak, planned ", gib(plan.peak_bytes_but(kSlots)),
                " without slots");
  log(line);
  const double tokens_a_step = static_cast<double>(need.batch.tokens_of_update);
  // Behind the first optimizer step of an update the log-probabilities of before are needed: a third of a pass.
  const double passes =
      static_cast<double>(options.update.num_iterations) + (options.update.optimizer_steps() > 1 ? 1.0 / 3 : 0);
  const double seconds_a_step = passes * tokens_a_step / tokens_a_second;
  log(cat("so an update takes ", precise(seconds_a_step), " at most, and those of ", options.steps, " steps ",
          for_people(seconds_a_step * static_cast<double>(options.steps)), " at most",
          options.supervised ? ""
                             : "; rollouts, rewards and evaluations come on top: a run says how long behind its first "
                               "step"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MemoryPlan> plan_of(const TrainOptions& options) {
  BASCULE_ASSIGN(const MemoryNeed need, need_of(options));
  return plan_memory(need);
}

absl::Status dry_run(TrainOptions options, const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(const Task task, read_task_of(options));
  BASCULE_TRY(resolve_steps(options, task));
  // As of a run, whose end is not known before it has dropped problems.
  if (!options.drop_long || options.epochs == 0) BASCULE_TRY(resolve_schedule(options));
  BASCULE_ASSIGN(const PromptWriter prompts, read_prompt_writer(options, task));
  BASCULE_TRY(check_task(options, task, prompts));
  BASCULE_ASSIGN(const MemoryNeed need, need_of(options));
  const MemoryPlan plan = plan_memory(need);
  log(cat("micro-batches of at most ", need.batch.tokens, " tokens, ", need.batch.completion_tokens,
          " of them of completions; ", need.batch.rows, " rows of the longest, ", need.batch.count,
          " micro-batches an update then"));
  for (const MemoryPart& part : plan.parts) log(absl::StrFormat("%12s  %s", gib(part.bytes), part.name));
  log(absl::StrFormat("%12s  in all, at the peak of an update", gib(plan.peak_bytes())));

  if (!options.is_device_open) {
    log(cat(options.device.str(), " was not looked at"));
    return absl::OkStatus();
  }
  const std::int64_t free = free_bytes_on(options.device);
  log(absl::StrFormat("%12s  is free on %s", gib(free), options.device.str()));
  // LibTorch keeps memory in blocks that do not fit the next use, and a GPU's context takes some.
  const std::int64_t most = free - free / 16;
  if (plan.peak_bytes() > most)
    return absl::ResourceExhaustedError(cat("this run takes ", gib(plan.peak_bytes()), " on ", options.device.str(),
                                            ", which has ", gib(free), " free, a sixteenth of which is left alone; ",
                                            advice_for(options, need, most)));
  return try_out(options, need, plan, log);
}

}  // namespace bascule::ref
