// A micro-batch as tensors: prompts and completions in rows, padded at the right.
//
// Shapes: B rows, S tokens a row (prompt and completion), T tokens of the longest completion.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include <bascule/trainer_ref/grpo/rollout.h>

namespace bascule::ref {

// One completion with the prompt it belongs to; both must outlive it.
struct TrainingRow {
  const std::vector<std::int64_t>* prompt = nullptr;
  const Rollout* rollout = nullptr;
};

struct Batch {
  std::int64_t rows = 0, row_tokens = 0;  // B, S
  at::Tensor token_ids;                   // int64 [B·S]
  at::Tensor positions;                   // int64 [B·S], from 0 in each row
  at::Tensor sources;                     // int64 [B·T]: the place in [B·S] whose logits predict the target
  at::Tensor targets;                     // int64 [B, T]: the completion's tokens
  at::Tensor mask;                        // float [B, T]: 1 for tokens of the completion
  at::Tensor behaviour_log_probs;         // float [B, T]: by the engines
  at::Tensor advantages;                  // float [B]
};

// Every row has a prompt and a completion of at least one token. The tensors lie on `device`.
Batch make_batch(std::span<const TrainingRow> rows, at::Device device = at::kCPU);

}  // namespace bascule::ref
