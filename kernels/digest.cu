#include <cuda_runtime_api.h>

#include "kernels/cuda_digest.h"
#include "kernels/digest_device.cuh"

namespace bascule::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kThreads, 2)
    digest_tiles(const std::byte* slot, std::uint64_t first, DigestTarget target) {
  digest_tile(slot, first + blockIdx.x, target);
}

}  // namespace

CudaResult DigestCell::make(DigestCell* made) {
  DigestCell cell;
  BASCULE_CUDA_PASS(DeviceMemory::make(sizeof(DigestTotals), &cell.totals_));
  BASCULE_CUDA_PASS(PinnedMemory::make(sizeof(Digest), &cell.digest_));
  BASCULE_CUDA_CHECK(cudaMemset(cell.totals_.as<void>(), 0, sizeof(DigestTotals)));
  // The host does not wait for a memset of device memory, and neither do other streams.
  BASCULE_CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
  *made = std::move(cell);
  return {};
}

CudaResult DigestCell::target(std::uint64_t bytes, Stream stream, DigestTarget* target) {
  if (missing_tiles_ != 0) BASCULE_CUDA_CHECK(cudaMemsetAsync(totals_.as<void>(), 0, sizeof(DigestTotals), stream));
  missing_tiles_ = tiles_of(bytes);
  // No bytes have no tiles, hence no kernel: their digest is known.
  if (bytes == 0) *digest_.as<Digest>() = TileTotal{}.finish(0);
  *target = {
      .totals = totals_.as<DigestTotals>(), .digest = digest_.as<Digest>(), .tiles = missing_tiles_, .bytes = bytes};
  return {};
}

CudaResult digest_part(const void* slot, std::uint64_t first, std::uint64_t last, const DigestTarget& target,
                       DigestCell& cell, Stream stream) {
  if (reinterpret_cast<std::uintptr_t>(slot) % 16 != 0) return BASCULE_CUDA_RESULT(cudaErrorMisalignedAddress);
  if (first == last) return {};
  digest_tiles<<<static_cast<unsigned>(last - first), kThreads, 0, stream>>>(static_cast<const std::byte*>(slot), first,
                                                                             target);
  BASCULE_CUDA_CHECK(cudaGetLastError());
  cell.launched(last - first);
  return {};
}

CudaResult digest(const void* slot, std::uint64_t bytes, DigestCell& cell, Stream stream) {
  DigestTarget target;
  BASCULE_CUDA_PASS(cell.target(bytes, stream, &target));
  return digest_part(slot, 0, target.tiles, target, cell, stream);
}

}  // namespace bascule::kernels::cuda
