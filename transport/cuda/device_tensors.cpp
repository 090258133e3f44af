#include <bascule/transport/cuda/device_tensors.h>

#include <cuda_runtime_api.h>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {

absl::Status DeviceParameters::move(std::span<const Move> moves) {
  const kernels::cuda::DeviceGuard guard(device_);
  BASCULE_TRY(cuda_status(guard.result()));
  BASCULE_TRY(check_stream(device_, stream_));
  for (const Move& move : moves)
    BASCULE_CUDA(cudaMemcpyAsync(move.to, move.from, move.bytes, cudaMemcpyDeviceToDevice, stream_));
  BASCULE_CUDA(cudaStreamSynchronize(stream_));
  return absl::OkStatus();
}

}  // namespace bascule::inline v0::cuda
