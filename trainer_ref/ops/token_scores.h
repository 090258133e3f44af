// What a trainer needs of logits, each in one pass: the softmax at one token of every row, and its gradient.
//
// logits [N, V]; targets [N], each below V. All sums are in float32.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>
#include <bascule/trainer_ref/ops/plain_real.h>

namespace bascule::ref::ops {

// For each row x with target t: log_sum = log Σ exp x, log_prob = x[t] − log_sum, entropy = log_sum − Σ p x with p =
// exp(x − log_sum), in nats. [N] each.
struct TokenScores {
  float* log_sum;
  float* log_prob;
  float* entropy;
};

// Memory as for rms_norm().
kernels::cuda::CudaResult score_tokens(const TokenScores& out, const void* logits, DType dtype,
                                       const std::int64_t* targets, std::int64_t rows, std::int64_t vocabulary,
                                       kernels::cuda::Stream stream);

// In place: logits become the gradients of Σ weights[n] · log_prob[n], weight · ((1 at the target) − p).
kernels::cuda::CudaResult differentiate_scores(void* logits, DType dtype, const std::int64_t* targets,
                                               const float* log_sums, const float* weights, std::int64_t rows,
                                               std::int64_t vocabulary, kernels::cuda::Stream stream);

namespace plain {
void score_tokens(const TokenScores& out, Reals logits, const std::int64_t* targets, std::int64_t rows,
                  std::int64_t vocabulary);
void differentiate_scores(Reals logits, const std::int64_t* targets, const float* log_sums, const float* weights,
                          std::int64_t rows, std::int64_t vocabulary);
}  // namespace plain

}  // namespace bascule::ref::ops
