// The GPUs that this process sees. The same GPU may have another number in another process (CUDA_VISIBLE_DEVICES
// renumbers them), so processes name GPUs to each other by UUID.
//
// Any thread. All calls are safe without a GPU and without a driver.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0::cuda {

struct Device {
  int ordinal = 0;  // what cudaSetDevice takes, in this process
  std::array<std::uint8_t, 16> uuid{};
  std::string name;  // "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  int compute_capability = 0;   // 90 means 9.0
  bool exports_memory = false;  // whether it exports memory as POSIX descriptors, as cuda-ipc needs
};

// "GPU-8c5c6e0a-...", as in nvidia-smi and CUDA_VISIBLE_DEVICES.
std::string to_string(const std::array<std::uint8_t, 16>& uuid);

// Returns all GPUs that this process sees, or UNAVAILABLE; see why_no_gpu().
absl::StatusOr<std::vector<Device>> devices();
// Returns the GPU with that number, or UNAVAILABLE if there is none.
absl::StatusOr<Device> find_device(int ordinal);
// Returns the GPU with that UUID, or NOT_FOUND if this process does not see it; the text then lists the GPUs that this
// process sees, and CUDA_VISIBLE_DEVICES if that is set.
absl::StatusOr<Device> find_device(const std::array<std::uint8_t, 16>& uuid);

// Returns OK if there is a GPU on which Bascule's kernels run. Otherwise returns UNAVAILABLE and says why: no driver, a
// driver that is too old, no device, or a device that is too old.
absl::Status why_no_gpu();

// Returns ", of which device 0 has 120 MiB free of 143167", for texts about a lack of memory, or an empty text if that
// is unknown.
std::string free_memory(int device);

// Whether `device` can read memory of another GPU, `peer`. False if both are the same GPU, or if the driver cannot
// tell.
bool can_reach(int device, int peer);

}  // namespace bascule::inline v0::cuda
