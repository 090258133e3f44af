#include <bascule/transport/cuda/device_totals.h>

#include <cuda_runtime_api.h>

#include <algorithm>

#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {

namespace kc = kernels::cuda;
using kernels::TileTotal;

absl::StatusOr<std::unique_ptr<DeviceTable>> CudaTable::make(std::uint64_t tiles,
                                                             std::span<const std::uint8_t> wanted) {
  auto made = std::make_unique<CudaTable>();
  const std::uint64_t entries = std::max<std::uint64_t>(tiles, 1);
  BASCULE_TRY(cuda_status(kc::PinnedMemory::make(entries * sizeof(TileTotal), &made->own_)));
  made->on_device_ = made->own_.as<TileTotal>();
  made->totals_ = {made->on_device_, tiles};
  if (wanted.empty()) return made;
  BASCULE_TRY(cuda_status(kc::DeviceMemory::make(wanted.size(), &made->wanted_)));
  BASCULE_CUDA(cudaMemcpy(made->wanted_.as<void>(), wanted.data(), wanted.size(), cudaMemcpyHostToDevice));
  return made;
}

absl::StatusOr<std::unique_ptr<DeviceTable>> CudaTable::open(int device, std::span<TileTotal> totals) {
  auto made = std::make_unique<CudaTable>();
  BASCULE_ASSIGN(made->registration_, HostRegistration::make(device, std::as_bytes(totals), Access::kReadWrite));
  const kc::DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  void* on_device = nullptr;
  BASCULE_CUDA(cudaHostGetDevicePointer(&on_device, totals.data(), 0));
  made->on_device_ = static_cast<TileTotal*>(on_device);
  made->totals_ = totals;
  return made;
}

}  // namespace bascule::inline v0::cuda
