// DeviceLife: in which life of a device's context an object was made. cudaDeviceReset() ends a life and frees
// everything made in it: given an old handle, the driver would read freed memory, and an old address may belong to
// other code. So owners remember the life, and touch nothing once it is over.
//
// A life is identified by a few bytes of device memory, made in it, whose number is unique in the process. They live as
// long as the last copy of the DeviceLife. Any thread.
#pragma once

#include <memory>

#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::kernels::cuda {

class DeviceLife {
 public:
  // The current life of `device`; makes its context if there is none. Does not wait for the device.
  static CudaResult of(int device, DeviceLife* life);

  int device() const { return device_; }  // -1: none
  // Whether it has ended. False if that is unknown, and after a sticky error, since the context's handles still exist.
  bool over() const;

 private:
  class Canary;
  int device_ = -1;
  std::shared_ptr<const Canary> canary_;
};

}  // namespace bascule::inline v0::kernels::cuda
