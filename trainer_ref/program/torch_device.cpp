#include <bascule/trainer_ref/program/torch_device.h>

#include <ATen/Context.h>
#include <dlfcn.h>
#include <torch/cuda.h>

#include <charconv>
#include <limits>
#include <optional>

#include <bascule/sender/program/sync_flag.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// The N of cuda or cuda:N; too large a number gives the largest int.
std::optional<int> gpu_number(std::string_view flag) {
  constexpr std::string_view kCuda = "cuda:";
  if (flag == "cuda") return 0;
  if (!flag.starts_with(kCuda)) return std::nullopt;
  const std::string_view digits = flag.substr(kCuda.size());
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int number = std::numeric_limits<int>::max();  // unchanged if out of range
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

// Returns null, and the reason in `why`, if it cannot be opened. Never closed: what it registers is used until the end.
void* open_library(const char* name, std::string& why) {
  void* library = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) why = ::dlerror();
  return library;
}

}  // namespace

namespace {

absl::StatusOr<c10::Device> open_gpu(std::string_view flag, int number) {
  std::string why;
  if (open_library("libcuda.so.1", why) == nullptr) {
    return unavailable("--device=", flag, ": expected an NVIDIA GPU, found none, as there is no driver for one (", why,
                       "); install it, or give --device=cpu");
  }
  if (open_library("libtorch_cuda.so", why) == nullptr) {
    return unavailable("--device=", flag, ": LibTorch's libraries for GPUs cannot be opened (", why,
                       "); install the wheel torch==2.11.0 with all that it needs and put its torch/lib first into "
                       "LD_LIBRARY_PATH, or give --device=cpu");
  }
  const int gpus = torch::cuda::device_count();
  if (gpus == 0) {
    return unavailable("--device=", flag,
                       ": expected an NVIDIA GPU, found a driver, but no GPU that this process sees; look at "
                       "nvidia-smi and CUDA_VISIBLE_DEVICES, or give --device=cpu");
  }
  if (number >= gpus) {
    return invalid_argument("--device=", flag, ": expected a GPU that this process sees, found ", gpus,
                            gpus == 1 ? ", cuda:0; give --device=cuda:0"
                                      : cat(", cuda:0 to cuda:", gpus - 1, "; give one of them, as --device=cuda:0"),
                            ", or --device=cpu");
  }
  at::globalContext().setAllowTF32CuBLAS(false);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(number));
}

}  // namespace

absl::StatusOr<c10::Device> open_torch_device(std::string_view flag, const std::function<void(std::string_view)>& log) {
  if (flag == "cpu") return c10::Device(c10::kCPU);
  if (flag != "auto") {
    if (const std::optional<int> number = gpu_number(flag)) return open_gpu(flag, *number);
    return invalid_argument("--device=", flag, ": expected cpu, cuda, cuda:N or auto, as --device=cuda:0");
  }
  const absl::Status built = check_build_for_gpus();
  const absl::StatusOr<c10::Device> gpu = built.ok() ? open_gpu("cuda", 0) : built;
  if (gpu.ok())
    log("--device=auto: computes on cuda:0");
  else
    log(cat("--device=auto: computes on the CPU: ", message_of(gpu.status())));
  return gpu.ok() ? *gpu : c10::Device(c10::kCPU);
}

}  // namespace bascule::ref
