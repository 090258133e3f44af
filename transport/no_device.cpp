// transport/device.h in a build without CUDA.
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status why_no_cuda() {
  return unimplemented(
      "this build has no CUDA; build it where a toolkit of 12.5 or newer is found "
      "(-DBASCULE_CUDA=ON says why one is not), or keep the tensors in host memory");
}

absl::Status take_kept_device_errors() { return absl::OkStatus(); }
void own_thread_of_devices() {}

absl::StatusOr<std::unique_ptr<DeviceQueue>> open_device(int device) {
  return annotate(why_no_cuda(), cat("tensors on device ", device));
}

absl::Status check_stream(int device, Stream) { return annotate(why_no_cuda(), cat("a stream of device ", device)); }

absl::Status check_memory(int device, std::span<const MemoryRange>) {
  return annotate(why_no_cuda(), cat("tensors on device ", device));
}

absl::StatusOr<std::unique_ptr<DeviceMark>> make_device_mark(int device) {
  return annotate(why_no_cuda(), cat("a stream of device ", device));
}

}  // namespace bascule::inline v0
