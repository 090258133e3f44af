// DeviceLife: remembers in which life of a device's context an object was made. cudaDeviceReset() ends a life and frees
// everything made in it. Afterwards the driver would read freed memory if it were given an old handle, and an old
// address may belong to other code. So owners remember the life, and touch nothing once it is over.
//
// A life is identified by a small allocation of device memory that was made in it and to which the driver gave a number
// that is unique in the process. The allocation is freed with the last copy of the DeviceLife. Any thread.
#pragma once

#include <memory>

#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::kernels::cuda {

class DeviceLife {
 public:
  // Gets the current life of `device`; makes its context if there is none. Does not wait for the device.
  static CudaResult of(int device, DeviceLife* life);

  int device() const { return device_; }  // -1: none
  // Returns true if the life has ended, and false if that is unknown. It is also false after a sticky error, since the
  // context's handles still exist.
  bool over() const;

 private:
  class Canary;
  int device_ = -1;
  std::shared_ptr<const Canary> canary_;
};

}  // namespace bascule::inline v0::kernels::cuda
