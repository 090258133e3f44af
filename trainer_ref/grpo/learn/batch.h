// A micro-batch as tensors: prompts with their completions, packed in rows one behind another.
//
// Shapes: R rows, N tokens of all rows (prompts and completions), M tokens of all completions, row after row.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/model/packed_rows.h>

namespace bascule::ref {

// One completion with the prompt it belongs to; both must outlive it.
struct TrainingRow {
  const std::vector<std::int64_t>* prompt = nullptr;
  const Rollout* rollout = nullptr;

  std::int64_t tokens() const { return static_cast<std::int64_t>(prompt->size() + rollout->token_ids.size()); }
};

struct Batch {
  PackedRows rows;
  at::Tensor token_ids;            // int64 [N]
  at::Tensor positions;            // int64 [N], from 0 in each row
  at::Tensor sources;              // int64 [M]: the place in [N] whose hidden state predicts the target
  at::Tensor targets;              // int64 [M]: the completions' tokens
  at::Tensor row_of;               // int64 [M]: the row that each belongs to
  at::Tensor completion_tokens;    // float [R]: targets of each row
  at::Tensor behaviour_log_probs;  // float [M]: by the engines
  at::Tensor advantages;           // float [R]
};

// `rows` in order, cut into micro-batches of at most `most_rows` rows and `most_tokens` tokens of prompts and
// completions (0: any number). A row that is longer than that is alone.
std::vector<std::span<const TrainingRow>> micro_batches_of(std::span<const TrainingRow> rows, std::size_t most_rows,
                                                           std::int64_t most_tokens);

// Every row has a prompt and a completion of at least one token. The tensors lie on `device`.
Batch make_batch(std::span<const TrainingRow> rows, at::Device device = at::kCPU);

}  // namespace bascule::ref
