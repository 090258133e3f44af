#include <bascule/trainer_ref/grpo/options/memory_plan_of.h>

#include <algorithm>
#include <string>

#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/grpo/options/starting_adapter.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Adds the slots on the trainer's device, besides its own weights.
absl::Status add_slots(const TrainFlags& flags, const std::string& sync, MemoryNeed& need) {
  if (flags.supervised || flags.engines.restarts || flags.engines.own) return absl::OkStatus();
  std::string url = sync;
  if (url.empty() && flags.engines.spawn.engines > 0)
    url = endpoint_in("/private", flags.engines.spawn, flags.compute.device.str());
  if (url.empty()) return absl::OkStatus();
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(url));
  if (keeps_slots_on_gpu(endpoint) != flags.compute.device.is_cuda() || endpoint.slots == 1) return absl::OkStatus();
  need.slots = endpoint.slots;
  need.sends_adapter_alone = flags.lora.on && flags.lora.sync == LoraSync::kAdapters;
  need.slot_weight_bytes = endpoint.wire_dtype.value_or(DType::kF32) == DType::kF32 ? 4 : 2;
  return absl::OkStatus();
}

}  // namespace

UpdateRows update_rows_of(const TrainFlags& flags, const RunPlan& plan) {
  const auto problems = static_cast<std::int64_t>(flags.rollouts.prompts_per_step);
  const std::int64_t rows = flags.supervised ? problems : problems * flags.rollouts.group_size;
  const std::int64_t mini_batches = flags.supervised ? 1 : std::min(flags.learn.update.mini_batches, rows);
  return {.rows = rows,
          .tokens = plan.rows,
          .most_rows = std::min(static_cast<std::int64_t>(flags.learn.update.micro_batch),
                                (rows + mini_batches - 1) / mini_batches),
          .most_tokens = flags.learn.update.micro_batch_tokens};
}

absl::StatusOr<MemoryNeed> memory_need_of(const TrainFlags& flags, const RunPlan& plan) {
  MemoryNeed need{.compute = flags.compute.options,
                  .device = flags.compute.device.type(),
                  .has_reference = !flags.supervised && flags.learn.needs_reference()};
  BASCULE_ASSIGN(need.config, read_config(plan.start.model));
  need.batch = largest_batch(update_rows_of(flags, plan));
  if (flags.lora.on) {
    BASCULE_ASSIGN(const Adapter adapter, starting_adapter(flags, plan.start.model));
    need.dropout = adapter.lora.dropout;
    need.adapted = adapter.adapted();
    need.shares_base = !flags.lora.base.empty();
  }
  BASCULE_TRY(add_slots(flags, plan.sync, need));
  return need;
}

absl::StatusOr<MemoryPlan> memory_plan_of(const TrainFlags& flags, const RunPlan& plan) {
  BASCULE_ASSIGN(const MemoryNeed need, memory_need_of(flags, plan));
  return plan_memory(need);
}

}  // namespace bascule::ref
