// Rotary position embedding (Su et al. 2021) of queries and keys, after RMSNorm of both if the model has it (Qwen3);
// writes keys and values to the cache.
//
//   x'[i]       = x[i] · cos(p ω[i]) − x[i + D/2] · sin(p ω[i])        i < D/2, p the token's position
//   x'[i + D/2] = x[i + D/2] · cos(p ω[i]) + x[i] · sin(p ω[i])        in pairs (i, i + D/2), as Hugging Face's weights
//
// Shapes: N tokens, H query heads, G key/value heads, D head width, even.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>
#include <bascule/trainer_ref/ops/paged_cache.h>
#include <bascule/trainer_ref/ops/plain_real.h>

namespace bascule::ref::ops {

struct RotateInput {
  const void* query_key_value = nullptr;  // [N, (H + 2 G) D], queries first, then keys
  const void* update = nullptr;           // of the same shape, or none: first added to it, and the sum rounded
  const float* turns = nullptr;           // [N, D/2, 2]: cosine and sine
  const std::int64_t* places = nullptr;   // [N], where each token goes in the cache
  const void* query_norm = nullptr;       // [D], or none
  const void* key_norm = nullptr;
  std::int64_t tokens = 0;  // N
  int heads = 1;            // H
  float epsilon = 1e-6F;    // of the norms
};

// Computes turns [N, D/2, 2] from positions [N] and ω [D/2] (radians per position), rounded to `dtype` as in the
// models. Call it once per step.
kernels::cuda::CudaResult make_turns(float* turns, const std::int64_t* positions, const float* frequencies,
                                     std::int64_t tokens, int width, DType dtype, kernels::cuda::Stream stream);

// query [N, H, D]; keys and values go into `cache`, whose type all tensors have. Device memory.
kernels::cuda::CudaResult rotate(void* query, const PagedCache& cache, const RotateInput& input,
                                 kernels::cuda::Stream stream);

namespace plain {
void make_turns(float* turns, const std::int64_t* positions, const float* frequencies, std::int64_t tokens, int width,
                DType dtype);
void rotate(void* query, const PagedCache& cache, const RotateInput& input);
}  // namespace plain

}  // namespace bascule::ref::ops
