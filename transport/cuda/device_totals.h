// CudaTable: the CUDA implementation of DeviceTable. Kernels write each tile's total straight to host memory: 16 bytes
// per 64 KiB, so the host needs no copy afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/host_registration.h>
#include <bascule/transport/device.h>

namespace bascule::inline v0::cuda {

class CudaTable final : public DeviceTable {
 public:
  // DeviceQueue::make_table() for the current device, and open_table().
  static absl::StatusOr<std::unique_ptr<DeviceTable>> make(std::uint64_t tiles, std::span<const std::uint8_t> wanted);
  static absl::StatusOr<std::unique_ptr<DeviceTable>> open(int device, std::span<kernels::TileTotal> totals);

  std::span<const kernels::TileTotal> totals() const override { return totals_; }
  kernels::cuda::TileOutput output() const { return {.totals = on_device_, .wanted = wanted_.as<std::uint8_t>()}; }

 private:
  kernels::cuda::PinnedMemory own_;
  HostRegistration registration_;  // of memory that is not its own
  kernels::cuda::DeviceMemory wanted_;
  std::span<const kernels::TileTotal> totals_;
  kernels::TileTotal* on_device_ = nullptr;  // their address for the device
};

inline kernels::cuda::TileOutput output_of(Digesting digesting) {
  return digesting.table != nullptr ? static_cast<CudaTable*>(digesting.table)->output() : kernels::cuda::TileOutput{};
}

}  // namespace bascule::inline v0::cuda
