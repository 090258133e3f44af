#include <bascule/kernels/cuda_transpose.h>

#include <algorithm>

#include <bascule/kernels/launch_device.cuh>
#include <bascule/kernels/transpose_device.cuh>

namespace bascule::inline v0::kernels::cuda {

CudaResult pack_transposed(const DeviceTable& table, std::byte* slot, std::uint64_t first, std::uint64_t last,
                           PageSums* sums, const DigestOutput& target, Stream stream) {
  const DeviceTable::TransposedTiles& transposed = table.transposed();
  first = std::max(first, transposed.first), last = std::min(last, transposed.last);
  if (first >= last) return {};
  if (target.totals == nullptr) sums = nullptr;
  for (const auto& [tensor, packed] : transposed.types) {
    const auto kernel = tensor == DType::kBF16   ? pack_squares<DType::kBF16, DType::kBF16>
                        : packed == DType::kBF16 ? pack_squares<DType::kF32, DType::kBF16>
                        : packed == DType::kF16  ? pack_squares<DType::kF32, DType::kF16>
                                                 : pack_squares<DType::kF32, DType::kF32>;
    BASCULE_CUDA_CHECK(launch_tiles(kernel, last - first, stream, table.view(), slot, first, sums));
  }
  if (sums == nullptr) return {};
  constexpr std::uint64_t kTilesOfBlock = kThreads / kTilePages;
  BASCULE_CUDA_CHECK(launch_tiles(finish_pages, (last - first + kTilesOfBlock - 1) / kTilesOfBlock, stream,
                                  table.view(), first, last - first, sums, target));
  return {};
}

}  // namespace bascule::inline v0::kernels::cuda
