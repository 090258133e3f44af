// Tokens drawn from logits on the device, as sample() of engine/schedule/sampler.h draws them on the host: by the
// inverse of the cumulative distribution, with the same number, cuts and order. Logits never leave the device.
//
// Weights are integers, 2^40 for the likeliest token: their sums are the same in any order, so the same logits and
// number give the same token each time, in any batch. The host's weights are float64, so its draw may differ if a
// number falls within about 2^-20 of a border between two tokens.
//
// Shapes: V vocabulary, at most 2^20; B draws.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>

namespace bascule::ref::ops {

inline constexpr int kMostTop = 20;  // likeliest tokens that a draw may report

struct Draw {
  double number = 0;              // in [0, 1)
  float inverse_temperature = 1;  // 0: greedy
  float min_p = 0;                // the least weight of a token, as a fraction of the likeliest one's
  float top_p = 1;
  std::int32_t top_k = 0;      // 0: all
  std::int32_t row = 0;        // of the logits
  std::int32_t top = 0;        // likeliest tokens to report; then also the drawn one's rank
  std::int32_t token = -1;     // reports this token of a prompt and its rank, and draws none
  std::int32_t adjusted = -1;  // the row of adjusted logits that is drawn from; -1: from the model's
  bool raw = false;  // log-probabilities under softmax(logits), not softmax(logits / temperature); never adjusted
};

struct Drawn {
  std::int32_t token = -1;  // -1: a logit is NaN, or all are infinite
  std::int32_t rank = 0;    // 1: none is likelier; 0: not counted
  double logprob = 0;
};

struct TopToken {
  std::int32_t token = -1;
  float logprob = 0;
};

// Writes drawn [B] and tops [B, kMostTop] (null if no draw has `top`) for logits [rows, V], all in device memory. Skips
// the draws from adjusted logits.
kernels::cuda::CudaResult draw_tokens(Drawn* drawn, TopToken* tops, const void* logits, DType dtype,
                                      std::int64_t vocabulary, const Draw* draws, std::int64_t count,
                                      kernels::cuda::Stream stream);

// Writes the results of the draws from adjusted logits [A, V] (adjust_logits.h), and skips all others.
kernels::cuda::CudaResult draw_adjusted_tokens(Drawn* drawn, TopToken* tops, const float* adjusted, const void* logits,
                                               DType dtype, std::int64_t vocabulary, const Draw* draws,
                                               std::int64_t count, kernels::cuda::Stream stream);

}  // namespace bascule::ref::ops
