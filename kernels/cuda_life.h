// DeviceLife: which life of a device's context something was made in. cudaDeviceReset() ends one, and all that was made
// in it is gone: a handle of it given to CUDA again is read by the driver after it was freed, and an address may be
// an object of other code by now. So owners remember the life, and touch nothing once it is over.
//
// It is known by a few bytes of device memory, made in it, whose number is unique in the process. They
// live as long as the last copy of the life. Any thread.
#pragma once

#include <memory>

#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::kernels::cuda {

class DeviceLife {
 public:
  // The life of `device` as it is now; makes its context where there is none. Does not wait for the device.
  static CudaResult of(int device, DeviceLife* life);

  int device() const { return device_; }  // -1: of none
  // Whether it has ended. False where that cannot be told, and of a context that a sticky error took: its handles are
  // there still.
  bool over() const;

 private:
  class Canary;
  int device_ = -1;
  std::shared_ptr<const Canary> canary_;
};

}  // namespace bascule::inline v0::kernels::cuda
