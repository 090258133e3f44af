#include "trainer_ref/program/torch_device.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <torch/cuda.h>

#include <charconv>
#include <optional>

#include "transport/text.h"

namespace bascule::ref {
namespace {

// The N of cuda or cuda:N.
std::optional<c10::DeviceIndex> gpu_number(std::string_view flag) {
  constexpr std::string_view kCuda = "cuda";
  if (flag == kCuda) return c10::DeviceIndex{0};
  if (!flag.starts_with("cuda:")) return std::nullopt;
  const char* end = flag.data() + flag.size();
  int number = 0;
  const auto [stop, failure] = std::from_chars(flag.data() + kCuda.size() + 1, end, number);
  if (failure != std::errc{} || stop != end || number < 0 || number > 63) return std::nullopt;
  return static_cast<c10::DeviceIndex>(number);
}

// Null, and why, where it cannot be opened. Never closed: what it registers is used until the process ends.
void* open_library(const char* name, std::string& why) {
  void* library = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) why = ::dlerror();
  return library;
}

}  // namespace

absl::StatusOr<c10::Device> open_torch_device(std::string_view flag) {
  if (flag == "cpu") return c10::Device(c10::kCPU);
  const std::optional<c10::DeviceIndex> number = gpu_number(flag);
  if (!number) return invalid_argument("--device=", flag, ": expected cpu, cuda or cuda:N, as in cuda:0");
  std::string why;
  if (open_library("libcuda.so.1", why) == nullptr) {
    return unavailable("--device=", flag, ": expected an NVIDIA GPU, found no driver for one (", why,
                       "); install it, or give cpu");
  }
  if (open_library("libtorch_cuda.so", why) == nullptr) {
    return unavailable("--device=", flag, ": LibTorch's libraries for GPUs cannot be opened (", why,
                       "); install the wheel torch==2.11.0 with all that it needs and put its torch/lib first into "
                       "LD_LIBRARY_PATH, or give cpu");
  }
  const int gpus = torch::cuda::device_count();
  if (gpus == 0) {
    return unavailable("--device=", flag,
                       ": the driver shows this process no GPU; look at nvidia-smi and CUDA_VISIBLE_DEVICES, or give "
                       "cpu");
  }
  if (*number >= gpus) {
    return invalid_argument("--device=", flag, ": this process sees ", gpus, gpus == 1 ? " GPU" : " GPUs",
                            "; give a number from 0 to ", gpus - 1);
  }
  at::globalContext().setAllowTF32CuBLAS(false);
  return c10::Device(c10::kCUDA, *number);
}

}  // namespace bascule::ref
