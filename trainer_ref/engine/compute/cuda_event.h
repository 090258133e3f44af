// An order between two streams: a stream that is held waits for what another one had to do when the event was recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include <bascule/kernels/cuda_result.h>
#include <bascule/trainer_ref/engine/compute/cuda_check.h>

namespace bascule::ref {

class CudaEvent {
 public:
  CudaEvent() {
    cudaEvent_t made = nullptr;
    check(BASCULE_CUDA_RESULT(cudaEventCreateWithFlags(&made, cudaEventDisableTiming)));
    event_.reset(made);
  }
  void record(kernels::cuda::Stream stream) const { check(BASCULE_CUDA_RESULT(cudaEventRecord(event_.get(), stream))); }
  void hold(kernels::cuda::Stream stream) const {
    check(BASCULE_CUDA_RESULT(cudaStreamWaitEvent(stream, event_.get(), 0)));
  }

 private:
  struct End {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, End> event_;
};

}  // namespace bascule::ref
