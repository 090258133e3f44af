// A micro-batch as tensors. Each row is a prompt and its completion; rows are packed without padding.
//
// In the shapes, R is the number of rows, N the number of tokens in them (prompts and completions), and M the number of
// tokens in their completions that are learned. Tokens are in the order of the rows.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/model/packed_rows.h>

namespace bascule::ref {

// One completion with the prompt it belongs to; both must outlive the row.
struct TrainingRow {
  const std::vector<std::int64_t>* prompt = nullptr;
  const Rollout* rollout = nullptr;

  std::int64_t tokens() const { return static_cast<std::int64_t>(prompt->size() + rollout->token_ids.size()); }
};

struct Batch {
  PackedRows rows;
  at::Tensor token_ids;            // int64 [N]
  at::Tensor positions;            // int64 [N], from 0 in each row
  at::Tensor sources;              // int64 [M]: the index in [N] of the hidden state that predicts the target
  at::Tensor targets;              // int64 [M]: the learned tokens
  at::Tensor row_of;               // int64 [M]: the row of each target
  at::Tensor completion_tokens;    // float [R]: the number of targets in each row
  at::Tensor behaviour_log_probs;  // float [M]: by the engines
  at::Tensor advantages;           // float [R]
};

// Cuts `rows`, in order, into micro-batches of at most `most_rows` rows and `most_tokens` tokens of prompts and
// completions (0: any number). A longer row gets a micro-batch to itself.
std::vector<std::span<const TrainingRow>> micro_batches_of(std::span<const TrainingRow> rows, std::size_t most_rows,
                                                           std::int64_t most_tokens);

// Every row must have a prompt of at least one token, and one that is learned. The tensors are on `device`.
Batch make_batch(std::span<const TrainingRow> rows, at::Device device = at::kCPU);

}  // namespace bascule::ref
