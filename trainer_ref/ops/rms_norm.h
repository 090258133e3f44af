// RMSNorm, after an optional addition to the residual.
//
//   residual[n] += added[n] + update[n]                           (if `added`, and if `update` is given)
//   out[n]       = weight · residual[n] / sqrt(mean(residual[n]²) + epsilon)
//
// Zhang and Sennrich 2019. Statistics are in float32; the sums and the normalised value are rounded to the tensors'
// type, as Hugging Face's models do. Shapes: N tokens, C channels; C a multiple of 8. `out` may be `added`.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>
#include <bascule/trainer_ref/ops/plain_real.h>

namespace bascule::ref::ops {

// Device memory, aligned to 16 bytes, of `dtype` F32 or BF16. Runs after the work in `stream`.
kernels::cuda::CudaResult rms_norm(void* out, void* residual, const void* added, const void* update, const void* weight,
                                   DType dtype, std::int64_t tokens, std::int64_t channels, float epsilon,
                                   kernels::cuda::Stream stream);

namespace plain {
void rms_norm(Reals out, Reals residual, Reals added, Reals update, Reals weight, std::int64_t tokens,
              std::int64_t channels, float epsilon);
}  // namespace plain

}  // namespace bascule::ref::ops
