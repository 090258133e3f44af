#include <bascule/kernels/cuda_memory.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <mutex>

#include <bascule/kernels/cuda_driver.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

struct Kept {
  std::mutex mutex;
  KeptErrors errors;
};
Kept& kept() {
  static Kept all;
  return all;
}

// Per thread; see own_thread_of_devices().
thread_local bool is_own = false;
thread_local bool is_relaxed = false;  // the thread keeps the relaxed capture mode once it has it
// The device of this thread's outermost guard; -1: none.
thread_local int guarded = -1;

// Driver functions that make no context.
struct CurrentContext {
  decltype(&::cuCtxGetCurrent) context = driver_function<decltype(&::cuCtxGetCurrent)>("cuCtxGetCurrent");
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_mode =
      driver_function<decltype(&::cuThreadExchangeStreamCaptureMode)>("cuThreadExchangeStreamCaptureMode");
};
const CurrentContext& current_context() {
  static const CurrentContext found;
  return found;
}

// A thread that never called the runtime is on device 0, but without that device's context, which driver calls need.
bool has_context() {
  CUcontext context = nullptr;
  return current_context().context == nullptr || current_context().context(&context) != CUDA_SUCCESS ||
         context != nullptr;
}

// Exchanges this thread's capture mode for `mode`; -1 leaves it.
int exchange_mode(int mode) {
  auto exchanged = static_cast<CUstreamCaptureMode>(mode);
  const bool done =
      current_context().exchange_mode != nullptr && current_context().exchange_mode(&exchanged) == CUDA_SUCCESS;
  return done ? static_cast<int>(exchanged) : -1;
}

}  // namespace

int clear_error_of(int answer) {
  if (answer != cudaSuccess) (void)cudaGetLastError();
  return answer;
}

void* driver_function(const char* name) {
  constexpr unsigned kVersion = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
  const int answer = clear_error_of(cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &how));
  return answer == cudaSuccess && how == cudaDriverEntryPointSuccess ? found : nullptr;
}

void own_thread_of_devices() { is_own = true; }

void keep_error(const CudaResult& result) {
  if (result.ok()) return;
  std::lock_guard lock(kept().mutex);
  if (kept().errors.count++ == 0) kept().errors.first = result;
}

KeptErrors take_kept_errors() {
  std::lock_guard lock(kept().mutex);
  return std::exchange(kept().errors, {});
}

DeviceGuard::DeviceGuard(int device) {
  if (guarded == device) return;  // all is set already; each further driver call would make a flip a microsecond slower
  result_ = BASCULE_CUDA_RESULT(cudaGetDevice(&before_));
  if (!is_relaxed) mode_ = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  if (is_own) {
    is_relaxed = true;
    mode_ = -1;
  }
  const bool is_current = !result_.ok() || before_ == device;
  if (result_.ok() && (!is_current || !has_context())) result_ = BASCULE_CUDA_RESULT(cudaSetDevice(device));
  if (is_current || is_own) before_ = -1;
  if (result_.ok()) outer_ = std::exchange(guarded, device);
  entered_ = result_.ok();
}

DeviceGuard::~DeviceGuard() {
  if (entered_) guarded = outer_;
  if (before_ >= 0) keep_error(BASCULE_CUDA_RESULT(cudaSetDevice(before_)));
  if (mode_ >= 0) (void)exchange_mode(mode_);
}

template <MemoryKind kKind>
CudaResult Memory<kKind>::make(std::size_t bytes, Memory* made) {
  int device = -1;
  BASCULE_CUDA_CHECK(cudaGetDevice(&device));
  const DeviceGuard guard(device);
  BASCULE_CUDA_PASS(guard.result());
  Memory memory;
  BASCULE_CUDA_PASS(DeviceLife::of(device, &memory.life_));
  const std::size_t asked = bytes > 0 ? bytes : 1;
  CudaResult result;
  if constexpr (kKind == MemoryKind::kDevice) {
    result = BASCULE_CUDA_RESULT(cudaMalloc(&memory.data_, asked));
  } else {
    result = BASCULE_CUDA_RESULT(cudaHostAlloc(&memory.data_, asked, cudaHostAllocPortable));
  }
  if (result.ok()) {
    *made = std::move(memory);
  } else {
    result.bytes = asked;
  }
  return result;
}

template <MemoryKind kKind>
Memory<kKind>::~Memory() {
  if (data_ == nullptr || life_.over()) return;
  const DeviceGuard guard(life_.device());
  keep_error(guard.result());
  if constexpr (kKind == MemoryKind::kDevice) {
    keep_error(BASCULE_CUDA_RESULT(cudaFree(data_)));
  } else {
    keep_error(BASCULE_CUDA_RESULT(cudaFreeHost(data_)));
  }
}

template class Memory<MemoryKind::kDevice>;
template class Memory<MemoryKind::kPinned>;

}  // namespace bascule::inline v0::kernels::cuda
