// DeviceMark with CUDA: an event on a user's stream.
#include <utility>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/cuda/stream.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using cuda::cuda_status;
using cuda::UniqueEvent;

class CudaMark final : public DeviceMark {
 public:
  explicit CudaMark(UniqueEvent event) : event_(std::move(event)) {}
  int device() const override { return event_.device(); }
  absl::Status record(Stream stream) override {
    BASCULE_TRY(event_.alive());
    const cuda::DeviceGuard guard(device());  // one guard for both
    BASCULE_TRY(cuda_status(guard.result()));
    BASCULE_TRY(check_stream(device(), stream));
    return event_.record(stream);
  }
  absl::Status wait(Deadline deadline) const override { return event_.wait(deadline); }

 private:
  UniqueEvent event_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMark>> make_device_mark(int device) {
  BASCULE_ASSIGN(UniqueEvent event, UniqueEvent::make(device));
  return std::make_unique<CudaMark>(std::move(event));
}

}  // namespace bascule::inline v0
