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
  BASCULE_CUDA_PASS(PinnedMemory::make(sizeof(DigestTotals), &cell.sums_));
  BASCULE_CUDA_CHECK(cudaMemset(cell.totals_.as<void>(), 0, sizeof(DigestTotals)));
  // The host does not wait for a memset of device memory, and neither do other streams.
  BASCULE_CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
  *made = std::move(cell);
  return {};
}

CudaResult DigestCell::target(std::uint64_t bytes, Stream stream, DigestTarget* target) {
  if (tiles_of(bytes) > DigestTotals::kMostTiles) return BASCULE_CUDA_RESULT(cudaErrorInvalidValue);
  if (missing_tiles_ != 0) BASCULE_CUDA_CHECK(cudaMemsetAsync(totals_.as<void>(), 0, sizeof(DigestTotals), stream));
  bytes_ = bytes;
  missing_tiles_ = tiles_of(bytes);
  *target = {
      .totals = totals_.as<DigestTotals>(), .sums = sums_.as<DigestTotals>(), .tiles = missing_tiles_, .bytes = bytes};
  return {};
}

Digest DigestCell::digest() const {
  if (bytes_ == 0) return TileTotal{}.finish(0);  // no tiles, hence no sums
  const auto& [words] = *sums_.as<DigestTotals>();
  const TileTotal total{.low = DigestTotals::half(words[0], words[1]), .high = DigestTotals::half(words[2], words[3])};
  return total.finish(bytes_);
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
