#include <bascule/trainer_ref/ops/feed_tokens.h>
#include <bascule/trainer_ref/ops/launch.cuh>

namespace bascule::ref::ops {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    feed_tokens_kernel(std::int64_t* token_ids, const std::int32_t* drawn_by, const Drawn* drawn, std::int64_t count) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n < count && drawn_by[n] >= 0) token_ids[n] = max(drawn[drawn_by[n]].token, 0);
}

}  // namespace

CudaResult feed_tokens(std::int64_t* token_ids, const std::int32_t* drawn_by, const Drawn* drawn, std::int64_t count,
                       Stream stream) {
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  return BASCULE_CUDA_RESULT(
      launch(&feed_tokens_kernel, dim3(blocks), kThreads, 0, stream, token_ids, drawn_by, drawn, count));
}

}  // namespace bascule::ref::ops
