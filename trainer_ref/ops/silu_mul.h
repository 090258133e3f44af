// The gate of SwiGLU (Shazeer 2020): out[n, i] = silu(gate[n, i]) · up[n, i], silu(x) = x / (1 + exp(-x)).
//
// `gate_up` is [N, 2 I], gate before up; out [N, I]; I a multiple of 8. If an `update` [N, 2 I] is given, it is first
// added to `gate_up`. Sum and factors are rounded to the tensors' type.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>
#include <bascule/trainer_ref/ops/plain_real.h>

namespace bascule::ref::ops {

// Memory as for rms_norm().
kernels::cuda::CudaResult silu_mul(void* out, const void* gate_up, const void* update, DType dtype, std::int64_t tokens,
                                   std::int64_t inner, kernels::cuda::Stream stream);

namespace plain {
void silu_mul(Reals out, Reals gate_up, Reals update, std::int64_t tokens, std::int64_t inner);
}  // namespace plain

}  // namespace bascule::ref::ops
