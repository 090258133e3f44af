#include <bascule/trainer_ref/model/fused_scores.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <bascule/trainer_ref/ops/token_scores.h>

namespace bascule::ref {
namespace {

kernels::cuda::Stream stream_of(const at::Tensor& tensor) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
  return static_cast<kernels::cuda::Stream>(stream.native_handle());
}

DType dtype_of(const at::Tensor& logits) { return logits.scalar_type() == at::kFloat ? DType::kF32 : DType::kBF16; }

void check(const kernels::cuda::CudaResult& result) {
  TORCH_CHECK(result.ok(), result.call, " failed with error ", result.code, " of CUDA");
}

}  // namespace

bool has_fused_scores(at::DeviceType device) { return device == at::kCUDA; }

void score_chunk(const ChunkScores& out, const at::Tensor& logits, const at::Tensor& targets) {
  const c10::DeviceGuard on_device(logits.device());
  check(ops::score_tokens({.log_sum = out.log_sums.mutable_data_ptr<float>(),
                           .log_prob = out.log_probs.mutable_data_ptr<float>(),
                           .entropy = out.entropy.mutable_data_ptr<float>()},
                          logits.const_data_ptr(), dtype_of(logits), targets.const_data_ptr<std::int64_t>(),
                          logits.size(0), logits.size(1), stream_of(logits)));
}

void differentiate_chunk(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sums,
                         const at::Tensor& weights) {
  const c10::DeviceGuard on_device(logits.device());
  check(ops::differentiate_scores(logits.mutable_data_ptr(), dtype_of(logits), targets.const_data_ptr<std::int64_t>(),
                                  log_sums.const_data_ptr<float>(), weights.const_data_ptr<float>(), logits.size(0),
                                  logits.size(1), stream_of(logits)));
}

}  // namespace bascule::ref
