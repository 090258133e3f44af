#include <bascule/transport/cuda/stream.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <bascule/transport/cuda/driver.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {

using kernels::cuda::keep_error;

absl::StatusOr<UniqueStream> UniqueStream::make(int device, Priority priority) {
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  int least = 0, greatest = 0;
  BASCULE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  UniqueStream made;
  BASCULE_TRY(cuda_status(DeviceLife::of(device, &made.life_)));
  const int high = greatest + 1 < least ? greatest + 1 : greatest;  // a lower number is a higher priority
  const int number = priority == Priority::kLow ? least : priority == Priority::kHigh ? high : greatest;
  BASCULE_CUDA(cudaStreamCreateWithPriority(&made.stream_, cudaStreamNonBlocking, number));
  return made;
}

UniqueStream::~UniqueStream() {
  if (stream_ == nullptr || life_.over()) return;
  const DeviceGuard guard(device());
  keep_error(guard.result());
  keep_error(BASCULE_CUDA_RESULT(cudaStreamDestroy(stream_)));
}

// Calls the driver, like UniqueEvent::query().
absl::Status UniqueStream::wait(Deadline deadline) const {
  BASCULE_ASSIGN(const Driver* const functions, driver());
  while (!life_.over()) {
    const DeviceGuard guard(device());
    BASCULE_TRY(cuda_status(guard.result()));
    const kernels::cuda::CudaResult found = BASCULE_CUDA_CODE(functions->stream_query(stream_));
    if (found.code != CUDA_ERROR_NOT_READY) return cuda_status(found);
    if (deadline.passed())
      return deadline_exceeded("device ", device(), " did not finish the work of a stream in time");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return was_reset(device());
}

absl::StatusOr<UniqueEvent> UniqueEvent::make(int device, Timing timing) {
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  UniqueEvent made;
  BASCULE_TRY(cuda_status(DeviceLife::of(device, &made.life_)));
  BASCULE_CUDA(
      cudaEventCreateWithFlags(&made.event_, timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming));
  return made;
}

UniqueEvent::~UniqueEvent() {
  if (event_ == nullptr || life_.over()) return;
  const DeviceGuard guard(device());
  keep_error(guard.result());
  keep_error(BASCULE_CUDA_RESULT(cudaEventDestroy(event_)));
}

absl::Status UniqueEvent::alive() const { return life_.over() ? was_reset(device()) : absl::OkStatus(); }

absl::Status UniqueEvent::record(Stream stream) {
  const DeviceGuard guard(device());
  BASCULE_TRY(cuda_status(guard.result()));
  return cuda_status(BASCULE_CUDA_RESULT(cudaEventRecord(event_, stream)));
}

absl::Status UniqueEvent::let_wait(Stream stream) const {
  return cuda_status(BASCULE_CUDA_RESULT(cudaStreamWaitEvent(stream, event_, 0)));
}

absl::StatusOr<bool> UniqueEvent::passed() const {
  BASCULE_TRY(alive());
  const DeviceGuard guard(device());
  BASCULE_TRY(cuda_status(guard.result()));
  return query();
}

// The device is current. Calls the driver, since the runtime would remember "not ready" in place of a user's error.
absl::StatusOr<bool> UniqueEvent::query() const {
  BASCULE_ASSIGN(const Driver* const functions, driver());
  const kernels::cuda::CudaResult found = BASCULE_CUDA_CODE(functions->event_query(event_));
  if (found.code == CUDA_ERROR_NOT_READY) return false;
  BASCULE_TRY(cuda_status(found));
  return true;
}

absl::Status UniqueEvent::wait(Deadline deadline) const {
  BASCULE_TRY(alive());
  const DeviceGuard guard(device());
  BASCULE_TRY(cuda_status(guard.result()));
  // Polls without sleeping at first: a pack takes a millisecond or two, and a sleep some tens of microseconds.
  const Clock::time_point begun = Clock::now();
  while (true) {
    BASCULE_ASSIGN(const bool done, query());
    if (done) return absl::OkStatus();
    if (deadline.passed()) return deadline_exceeded("device ", device(), " did not reach an event in time");
    if (Clock::now() - begun < std::chrono::milliseconds(5)) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    BASCULE_TRY(alive());
  }
}

absl::StatusOr<absl::Duration> UniqueEvent::since(const UniqueEvent& earlier) const {
  const DeviceGuard guard(device());
  BASCULE_TRY(cuda_status(guard.result()));
  float milliseconds = 0;
  BASCULE_CUDA(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
  return absl::Milliseconds(milliseconds);
}

}  // namespace bascule::inline v0::cuda
