#include <bascule/trainer_ref/grpo/dry_run.h>

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "absl/strings/str_format.h"
#include <bascule/kernels/control_group.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

std::string gib(std::int64_t bytes) { return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30)); }

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

std::int64_t free_on_host() {
  std::int64_t free = std::numeric_limits<std::int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.starts_with("MemAvailable:")) free = std::stoll(line.substr(13)) * 1024;
  if (const auto group = kernels::control_group_limits().memory_left_bytes)
    free = std::min(free, static_cast<std::int64_t>(*group));
  return free;
}

// What this process could take; nullopt: the device was not looked at.
std::optional<std::int64_t> free_bytes(const TrainOptions& options) {
  if (options.device.is_cpu()) return free_on_host();
  if (!options.is_device_open) return std::nullopt;
  return static_cast<std::int64_t>(at::getDeviceAllocator(at::kCUDA)->getMemoryInfo(options.device.index()).first);
}

// What would make it smaller, the cheapest first.
std::string advice_for(const MemoryNeed& need) {
  if (!need.compute.checkpoints_layers) return "add --gradient-checkpointing";
  if (need.batch.rows > 1) return cat("give a smaller --micro-batch-tokens, as ", need.batch.tokens / 2);
  if (need.compute.dtype == at::kFloat) return "give --train-dtype=bf16";
  return "give a smaller --max-tokens, or a smaller model";
}

absl::StatusOr<MemoryNeed> need_of(const TrainOptions& options, const Task& task, const PromptWriter& prompts) {
  MemoryNeed need{.compute = options.compute,
                  .device = options.device.type(),
                  .has_reference = !options.supervised && options.needs_reference()};
  BASCULE_ASSIGN(need.config, read_config(options.model));
  std::size_t prompt = 0, answer = 0;
  for (const Problem& problem : task.train) {
    BASCULE_ASSIGN(const std::vector<std::int64_t> tokens, prompts.tokens_of(problem));
    prompt = std::max(prompt, tokens.size());
    if (!options.supervised) continue;
    BASCULE_ASSIGN(const std::vector<std::int64_t> told, prompts.tokenizer().encode(problem.answer));
    answer = std::max(answer, told.size() + 1);  // and an end token
  }
  const auto problems = static_cast<std::int64_t>(options.prompts_per_step);
  need.batch =
      largest_batch(options.supervised ? problems : problems * options.group_size, static_cast<std::int64_t>(prompt),
                    options.supervised ? static_cast<std::int64_t>(answer) : options.max_tokens,
                    static_cast<std::int64_t>(options.update.micro_batch), options.update.micro_batch_tokens);
  BASCULE_TRY(add_slots(options, need));
  return need;
}

}  // namespace

absl::StatusOr<MemoryPlan> plan_of(const TrainOptions& options, const Task& task, const PromptWriter& prompts) {
  BASCULE_ASSIGN(const MemoryNeed need, need_of(options, task, prompts));
  return plan_memory(need);
}

absl::Status dry_run(const TrainOptions& options, const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(const Task task, read_task_of(options));
  BASCULE_ASSIGN(const PromptWriter prompts, read_prompt_writer(options, task));
  BASCULE_TRY(check_task(options, task, prompts));
  BASCULE_ASSIGN(const MemoryNeed need, need_of(options, task, prompts));
  const MemoryPlan plan = plan_memory(need);
  log(cat("micro-batches of at most ", need.batch.rows, " rows, ", need.batch.tokens, " tokens, ",
          need.batch.completion_tokens, " of them of completions; ", need.batch.count, " an update"));
  for (const MemoryPart& part : plan.parts) log(absl::StrFormat("%12s  %s", gib(part.bytes), part.name));
  log(absl::StrFormat("%12s  in all, at the peak of an update", gib(plan.peak_bytes())));

  const std::optional<std::int64_t> free = free_bytes(options);
  if (!free) {
    log(cat(options.device.str(), " was not looked at"));
    return absl::OkStatus();
  }
  log(absl::StrFormat("%12s  is free on %s", gib(*free), options.device.str()));
  // LibTorch keeps memory in blocks that do not fit the next use, and a GPU's context takes some.
  if (plan.peak_bytes() <= *free - *free / 16) return absl::OkStatus();
  return absl::ResourceExhaustedError(cat("this run takes ", gib(plan.peak_bytes()), " on ", options.device.str(),
                                          ", which has ", gib(*free), " free, a sixteenth of which is left alone; ",
                                          advice_for(need)));
}

std::string measured_beside(const MemoryPlan& plan, at::Device device) {
  if (!device.is_cuda()) return "";
  const auto statistics = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return cat("memory: planned ", gib(plan.peak_bytes()), ", measured ", gib(statistics.allocated_bytes[all].peak),
             " at the peak, ", gib(statistics.reserved_bytes[all].peak), " with what LibTorch keeps (", to_string(plan),
             ")");
}

}  // namespace bascule::ref
