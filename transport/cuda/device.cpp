#include <bascule/transport/cuda/device.h>

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"
#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/driver.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {
namespace {

constexpr int kOldestCapability = 80;  // for which the kernels have machine code

absl::StatusOr<Device> device_at(int ordinal) {
  cudaDeviceProp properties{};
  BASCULE_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  Device device{.ordinal = ordinal,
                .name = properties.name,
                .memory_bytes = properties.totalGlobalMem,
                .compute_capability = 10 * properties.major + properties.minor};
  std::memcpy(device.uuid.data(), &properties.uuid, device.uuid.size());
  if (const absl::StatusOr<const Driver*> functions = driver(); functions.ok()) {
    int exports = 0;
    // An error counts as false: an export then fails with its own text.
    device.exports_memory =
        (*functions)
                ->device_get_attribute(&exports, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                       ordinal) == CUDA_SUCCESS &&
        exports != 0;
  }
  return device;
}

std::string visible_devices() {
  const char* set = std::getenv("CUDA_VISIBLE_DEVICES");
  return set == nullptr ? std::string() : cat("; CUDA_VISIBLE_DEVICES is '", set, "'");
}

}  // namespace

std::string to_string(const std::array<std::uint8_t, 16>& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppendFormat(&text, "%02x", uuid[i]);
  }
  return text;
}

absl::Status why_no_gpu() {
  int count = 0;
  const absl::Status counted = cuda_status(BASCULE_CUDA_RESULT(cudaGetDeviceCount(&count)));
  if (!counted.ok() || count == 0) {
    int version = 0;
    if (kernels::cuda::clear_error_of(cudaDriverGetVersion(&version)) != cudaSuccess || version == 0)
      return unavailable("there is no NVIDIA driver on this machine");
    return unavailable("no GPU can be used: ", counted.ok() ? "this process sees none" : message_of(counted),
                       "; the driver is one of CUDA ", version / 1000, ".", version % 1000 / 10, visible_devices());
  }
  int newest = 0;
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<Device> device = device_at(i);
    if (device.ok()) newest = std::max(newest, device->compute_capability);
  }
  if (newest < kOldestCapability)
    return unavailable("the newest of ", count, " GPUs has compute capability ", newest / 10, ".", newest % 10,
                       "; expected 8.0 (A100) or newer");
  return driver().status();
}

absl::StatusOr<std::vector<Device>> devices() {
  BASCULE_TRY(why_no_gpu());
  int count = 0;
  BASCULE_CUDA(cudaGetDeviceCount(&count));
  std::vector<Device> all;
  for (int i = 0; i < count; ++i) {
    BASCULE_ASSIGN(Device device, device_at(i));
    all.push_back(std::move(device));
  }
  return all;
}

absl::StatusOr<Device> find_device(int ordinal) {
  BASCULE_ASSIGN(std::vector<Device> all, devices());
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= all.size())
    return unavailable("there is no device ", ordinal, "; this process sees ", all.size(), ", numbered from 0",
                       visible_devices());
  return std::move(all[static_cast<std::size_t>(ordinal)]);
}

absl::StatusOr<Device> find_device(const std::array<std::uint8_t, 16>& uuid) {
  BASCULE_ASSIGN(std::vector<Device> all, devices());
  std::string seen;
  for (Device& device : all) {
    if (device.uuid == uuid) return std::move(device);
    seen += cat(seen.empty() ? "" : ", ", to_string(device.uuid));
  }
  return absl::NotFoundError(cat("this process does not see ", to_string(uuid), "; it sees ", seen, visible_devices()));
}

std::string free_memory(int device) {
  const kernels::cuda::DeviceGuard guard(device);
  std::size_t free = 0, all = 0;
  if (!guard.result().ok() || kernels::cuda::clear_error_of(cudaMemGetInfo(&free, &all)) != cudaSuccess) return {};
  return cat(", of which device ", device, " has ", free >> 20, " MiB free of ", all >> 20);
}

bool can_reach(int device, int peer) {
  int can = 0;
  return kernels::cuda::clear_error_of(cudaDeviceCanAccessPeer(&can, device, peer)) == cudaSuccess && can != 0;
}

}  // namespace bascule::inline v0::cuda
