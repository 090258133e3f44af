// Tokens that the step before drew, put where this step reads its own: nobody waits for the host to know them.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/trainer_ref/ops/draw.h>

namespace bascule::ref::ops {

// token_ids[n] = drawn[drawn_by[n]].token where drawn_by[n] is not -1, or 0 where that draw had none; n < count. Device
// memory.
kernels::cuda::CudaResult feed_tokens(std::int64_t* token_ids, const std::int32_t* drawn_by, const Drawn* drawn,
                                      std::int64_t count, kernels::cuda::Stream stream);

namespace plain {
void feed_tokens(std::int64_t* token_ids, const std::int32_t* drawn_by, const Drawn* drawn, std::int64_t count);
}  // namespace plain

}  // namespace bascule::ref::ops
