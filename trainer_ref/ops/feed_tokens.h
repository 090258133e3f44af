// Copies the tokens that the previous step drew to where this step reads its input, without waiting for the host.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/trainer_ref/ops/draw.h>

namespace bascule::ref::ops {

// token_ids[n] = drawn[drawn_by[n]].token if drawn_by[n] is not -1, or 0 if that draw had none; n < count. Device
// memory.
kernels::cuda::CudaResult feed_tokens(std::int64_t* token_ids, const std::int32_t* drawn_by, const Drawn* drawn,
                                      std::int64_t count, kernels::cuda::Stream stream);

namespace plain {
void feed_tokens(std::int64_t* token_ids, const std::int32_t* drawn_by, const Drawn* drawn, std::int64_t count);
}  // namespace plain

}  // namespace bascule::ref::ops
