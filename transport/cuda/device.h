// The GPUs that this process sees. Its numbers for them are its own (CUDA_VISIBLE_DEVICES renumbers them); between
// processes a GPU is named by its UUID.
//
// Any thread. None of these fails the process where there is no GPU and no driver.
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
  bool exports_memory = false;  // by POSIX descriptors, as cuda-ipc needs it
};

// "GPU-8c5c6e0a-...", as nvidia-smi and CUDA_VISIBLE_DEVICES have it.
std::string to_string(const std::array<std::uint8_t, 16>& uuid);

// All that this process sees. UNAVAILABLE: as of why_no_gpu().
absl::StatusOr<std::vector<Device>> devices();
// The one of that number. UNAVAILABLE: there is none.
absl::StatusOr<Device> find_device(int ordinal);
// The one with that UUID. NOT_FOUND: this process does not see it; the text names those that it sees, and
// CUDA_VISIBLE_DEVICES where it is set.
absl::StatusOr<Device> find_device(const std::array<std::uint8_t, 16>& uuid);

// OK where there is a GPU that Bascule's kernels run on; else UNAVAILABLE, and why: no driver, a driver too old, no
// device, or one too old.
absl::Status why_no_gpu();

// ", of which device 0 has 120 MiB free of 143167": for texts of what it has not. Empty where it cannot tell.
std::string free_memory(int device);

// Whether `device` can read memory of the GPU `peer`. False also if the two are one, or if the driver cannot tell.
bool can_reach(int device, int peer);

}  // namespace bascule::inline v0::cuda
