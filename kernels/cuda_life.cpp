#include <bascule/kernels/cuda_life.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

#include <bascule/kernels/cuda_driver.h>
#include <bascule/kernels/cuda_memory.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

struct PrimaryContext {
  decltype(&::cuPointerGetAttribute) pointer_attribute =
      driver_function<decltype(&::cuPointerGetAttribute)>("cuPointerGetAttribute");
  decltype(&::cuDevicePrimaryCtxGetState) state =
      driver_function<decltype(&::cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
};
const PrimaryContext& primary_context() {
  static const PrimaryContext found;
  return found;
}

}  // namespace

class DeviceLife::Canary {
 public:
  static CudaResult make(int device, std::shared_ptr<const Canary>* made) {
    auto canary = std::make_shared<Canary>();
    canary->device_ = device;
    BASCULE_CUDA_CHECK(cudaMalloc(&canary->data_, 1));
    if (primary_context().pointer_attribute != nullptr)
      BASCULE_CUDA_PASS(BASCULE_CUDA_CODE(canary->number(&canary->number_)));
    *made = std::move(canary);
    return {};
  }
  ~Canary() {
    if (data_ == nullptr || over()) return;
    const DeviceGuard guard(device_);
    keep_error(guard.result());
    keep_error(BASCULE_CUDA_RESULT(cudaFree(data_)));
  }

  bool over() const {
    if (primary_context().pointer_attribute == nullptr) return false;
    unsigned long long now = 0;
    switch (number(&now)) {
      case CUDA_SUCCESS: return now != number_;
      case CUDA_ERROR_INVALID_VALUE:
      case CUDA_ERROR_CONTEXT_IS_DESTROYED: return true;
      case CUDA_ERROR_INVALID_CONTEXT: return !has_context();  // this thread has no context
      default: return false;
    }
  }

 private:
  CUresult number(unsigned long long* number) const {
    return primary_context().pointer_attribute(number, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                               reinterpret_cast<CUdeviceptr>(data_));
  }
  bool has_context() const {
    unsigned flags = 0;
    int active = 1;
    return primary_context().state == nullptr || primary_context().state(device_, &flags, &active) != CUDA_SUCCESS ||
           active != 0;
  }

  int device_ = -1;
  void* data_ = nullptr;
  unsigned long long number_ = 0;
};

CudaResult DeviceLife::of(int device, DeviceLife* life) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<const Canary>> known;
  const std::lock_guard lock(mutex);
  DeviceLife found;
  found.device_ = device;
  found.canary_ = known[device].lock();
  if (!found.canary_ || found.canary_->over()) {
    const DeviceGuard guard(device);
    BASCULE_CUDA_PASS(guard.result());
    BASCULE_CUDA_PASS(Canary::make(device, &found.canary_));
    known[device] = found.canary_;
  }
  *life = std::move(found);
  return {};
}

bool DeviceLife::over() const { return canary_ && canary_->over(); }

}  // namespace bascule::inline v0::kernels::cuda
