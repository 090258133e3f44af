// Predicts how much memory a trainer takes on its device, by part.
//
// The peak of an update is in its largest micro-batch, during one of three backward passes: through the head, the last
// layer, or the embedding. memory_plan.cpp says what is in memory then. The plan does not include the device's own
// context (about half a GiB on a GPU), what LibTorch keeps for reuse by allocations of other sizes, or engines on the
// same device.
//
// Threads: any. It does not access the device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/model/adapter.h>

namespace bascule::ref {

// The largest micro-batch, in Batch's terms.
struct LargestBatch {
  std::int64_t rows = 0;               // if all have the greatest length; more if some are shorter
  std::int64_t tokens = 0;             // N, of prompts and completions
  std::int64_t completion_tokens = 0;  // M
  std::int64_t count = 1;              // micro-batches of an update
  std::int64_t tokens_of_update = 0;   // N of all micro-batches
  std::int64_t row_tokens = 0;         // of the longest row
};

// Lengths of the rows that an update may have.
struct RowTokens {
  std::int64_t shortest_prompt = 0, longest_prompt = 0;
  std::int64_t completion = 0;  // the longest
};

// An update's rows, and how many UpdateOptions allows in a micro-batch.
struct UpdateRows {
  std::int64_t rows = 0;
  RowTokens tokens = {};
  std::int64_t most_rows = 64, most_tokens = 0;
};

// Shorter rows fill a micro-batch up to most_tokens, so it may be larger than one of the longest rows.
LargestBatch largest_batch(const UpdateRows& update);

struct MemoryNeed {
  ModelConfig config = {};
  ComputeOptions compute = {};
  at::DeviceType device = at::kCPU;
  LargestBatch batch = {};
  bool has_reference = false;
  std::vector<AdaptedModule> adapted = {};  // if an adapter is trained: its modules; the weights are then frozen
  double dropout = 0;                       // of the adapter
  bool sends_adapter_alone = false;
  bool shares_base = false;            // the frozen weights lie in a base
  std::int64_t slots = 0;              // on the trainer's device, besides its own weights
  std::int64_t slot_weight_bytes = 4;  // of each weight in a slot
};

struct MemoryPart {
  std::string name;
  std::int64_t bytes = 0;
  bool of_libtorch = true;  // false: slots, and a base, which other processes also map
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;  // what is in memory at the peak
  std::int64_t peak_bytes() const;
  std::int64_t peak_bytes_of_libtorch() const;
};

MemoryPlan plan_memory(const MemoryNeed& need);

// "23.40 GiB"
std::string gib(std::int64_t bytes);
// "23.40 GiB: f32 weights 2.20, AdamW's moments 4.40, …"
std::string to_string(const MemoryPlan& plan);

}  // namespace bascule::ref
