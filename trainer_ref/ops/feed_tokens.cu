#include <bascule/trainer_ref/ops/feed_tokens.h>
#include <bascule/trainer_ref/ops/launch.cuh>

namespace bascule::ref::ops {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads) feed_tokens_kernel(std::int32_t* history, FedTokens fed) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= fed.tokens) return;
  if (n < fed.singles && fed.drawn_by[n] >= 0) fed.token_ids[n] = max(fed.drawn[fed.drawn_by[n]].token, 0);
  history[fed.places[n]] = static_cast<std::int32_t>(fed.token_ids[n]);
}

}  // namespace

CudaResult feed_tokens(std::int32_t* history, const FedTokens& fed, Stream stream) {
  const auto blocks = static_cast<unsigned>((fed.tokens + kThreads - 1) / kThreads);
  return BASCULE_CUDA_RESULT(launch(&feed_tokens_kernel, dim3(blocks), kThreads, 0, stream, history, fed));
}

}  // namespace bascule::ref::ops
