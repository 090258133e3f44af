// The trainer's kernels over logits (ops/token_scores.h), on tensors; in a build without CUDA there are none.
//
// Threads: any; on the current stream of the logits' device. Shapes: c rows, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

namespace bascule::ref {

// Returns whether the two functions below work on this kind of device: true for a GPU in a build with CUDA. Logits must
// be contiguous, float or bfloat16.
bool has_fused_scores(at::DeviceType device);

struct ChunkScores {
  at::Tensor log_sums, log_probs, entropy;  // float [c], contiguous, written by score_chunk()
};
void score_chunk(const ChunkScores& out, const at::Tensor& logits, const at::Tensor& targets);

// Replaces logits [c, V] by the gradients of Σ weights · log_probs. weights: float [c], contiguous.
void differentiate_chunk(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sums,
                         const at::Tensor& weights);

}  // namespace bascule::ref
