// The GPUs that this process sees. Their numbers differ between processes (CUDA_VISIBLE_DEVICES renumbers them), so
// processes name a GPU to each other by its UUID.
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
  int compute_capability = 0;   // 90: 9.0
  bool exports_memory = false;  // as POSIX descriptors, which cuda-ipc needs
};

// "GPU-8c5c6e0a-...", as in nvidia-smi and CUDA_VISIBLE_DEVICES.
std::string to_string(const std::array<std::uint8_t, 16>& uuid);

// All GPUs that this process sees. UNAVAILABLE: see why_no_gpu().
absl::StatusOr<std::vector<Device>> devices();
// The GPU with that number. UNAVAILABLE: there is none.
absl::StatusOr<Device> find_device(int ordinal);
// The GPU with that UUID. NOT_FOUND: this process does not see it; the text lists the GPUs that it sees, and
// CUDA_VISIBLE_DEVICES if that is set.
absl::StatusOr<Device> find_device(const std::array<std::uint8_t, 16>& uuid);

// OK if there is a GPU that Bascule's kernels run on. UNAVAILABLE says why not: no driver, a driver too old, no device,
// or one too old.
absl::Status why_no_gpu();

// ", of which device 0 has 120 MiB free of 143167", for texts about a lack of memory; empty if unknown.
std::string free_memory(int device);

// Whether `device` can read memory of the GPU `peer`. Also false if both are the same GPU, or if the driver cannot
// tell.
bool can_reach(int device, int peer);

}  // namespace bascule::inline v0::cuda
