#include "transport/cuda/stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "transport/cuda/status.h"
#include "transport/text.h"

namespace bascule::cuda {

using kernels::cuda::keep_error;

absl::StatusOr<UniqueStream> UniqueStream::make(int device, Priority priority) {
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  int least = 0, greatest = 0;
  BASCULE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  UniqueStream made;
  made.device_ = device;
  BASCULE_CUDA(cudaStreamCreateWithPriority(&made.stream_, cudaStreamNonBlocking,
                                            priority == Priority::kHigh ? greatest : least));
  return made;
}

UniqueStream::~UniqueStream() {
  if (stream_ == nullptr) return;
  const DeviceGuard guard(device_);
  keep_error(guard.result());
  keep_error(BASCULE_CUDA_RESULT(cudaStreamDestroy(stream_)));
}

absl::StatusOr<UniqueEvent> UniqueEvent::make(int device, Timing timing) {
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  UniqueEvent made;
  made.device_ = device;
  BASCULE_CUDA(
      cudaEventCreateWithFlags(&made.event_, timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming));
  return made;
}

UniqueEvent::~UniqueEvent() {
  if (event_ == nullptr) return;
  const DeviceGuard guard(device_);
  keep_error(guard.result());
  keep_error(BASCULE_CUDA_RESULT(cudaEventDestroy(event_)));
}

absl::Status UniqueEvent::record(Stream stream) {
  const DeviceGuard guard(device_);
  BASCULE_TRY(cuda_status(guard.result()));
  return cuda_status(BASCULE_CUDA_RESULT(cudaEventRecord(event_, stream)));
}

absl::Status UniqueEvent::let_wait(Stream stream) const {
  return cuda_status(BASCULE_CUDA_RESULT(cudaStreamWaitEvent(stream, event_, 0)));
}

absl::StatusOr<bool> UniqueEvent::passed() const {
  const DeviceGuard guard(device_);
  BASCULE_TRY(cuda_status(guard.result()));
  const cudaError_t found = cudaEventQuery(event_);
  if (found == cudaSuccess) return true;
  if (found == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  return cuda_status({.code = found, .call = "cudaEventQuery(event)", .file = "stream.cpp", .line = __LINE__});
}

absl::Status UniqueEvent::wait(Deadline deadline) const {
  // First without sleeping: a pack takes a millisecond or two, and a sleep some tens of microseconds.
  const Clock::time_point begun = Clock::now();
  while (true) {
    absl::StatusOr<bool> done = passed();
    if (!done.ok()) return done.status();
    if (*done) return absl::OkStatus();
    if (deadline.passed()) return deadline_exceeded("device ", device_, " has not come to an event in time");
    if (Clock::now() - begun > std::chrono::milliseconds(5)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

absl::StatusOr<absl::Duration> UniqueEvent::since(const UniqueEvent& earlier) const {
  const DeviceGuard guard(device_);
  BASCULE_TRY(cuda_status(guard.result()));
  float milliseconds = 0;
  BASCULE_CUDA(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
  return absl::Milliseconds(milliseconds);
}

}  // namespace bascule::cuda
