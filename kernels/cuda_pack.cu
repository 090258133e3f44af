#include <cuda_runtime_api.h>

#include <bascule/kernels/cuda_pack.h>
#include <bascule/kernels/cuda_transpose.h>
#include <bascule/kernels/pack_device.cuh>

namespace bascule::inline v0::kernels::cuda {

CudaResult PackPlan::make(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                          PackPlan* made, std::span<const Arithmetic> arithmetic, std::uint64_t first_page) {
  if (first_page != 0 && !arithmetic.empty()) return BASCULE_CUDA_CODE(cudaErrorInvalidValue);
  PackPlan plan;
  plan.first_page_ = first_page;
  BASCULE_CUDA_PASS(plan.set(pack_table(segments, tensors, slot_bytes, arithmetic), tensors, slot_bytes));
  if (const std::size_t bytes = plan.table_.transposed().count * kTilePages * sizeof(PageSums); bytes > 0)
    BASCULE_CUDA_PASS(DeviceMemory::make(bytes, &plan.page_sums_));
  *made = std::move(plan);
  return {};
}

CudaResult PackPlan::pack(std::span<void* const> tensors, void* slot, bool want_digest, Stream stream,
                          const TileOutput& of_tiles) {
  BASCULE_CUDA_PASS(begin(tensors, slot, want_digest, stream, of_tiles));
  return advance(slot_bytes_, stream);
}

CudaResult PackPlan::begin(std::span<void* const> tensors, void* slot, bool want_digest, Stream stream,
                           const TileOutput& of_tiles) {
  if (reinterpret_cast<std::uintptr_t>(slot) % 16 != 0) return BASCULE_CUDA_CODE(cudaErrorMisalignedAddress);
  const DeviceGuard guard(device());
  BASCULE_CUDA_PASS(guard.result());
  BASCULE_CUDA_PASS(table_.set_addresses(tensors, stream));
  target_ = {};
  if (want_digest) {
    BASCULE_CUDA_PASS(
        cell_.target(slot_bytes_, stream, &target_, first_page_, makes_totals() ? of_tiles : TileOutput{}));
    if (const std::uint64_t count = table_.transposed().count; count > 0)
      BASCULE_CUDA_CHECK(cudaMemsetAsync(page_sums_.as<void>(), 0, count * kTilePages * sizeof(PageSums), stream));
  }
  slot_ = static_cast<std::byte*>(slot);
  tiles_done_ = 0;
  return {};
}

CudaResult PackPlan::advance(std::uint64_t end, Stream stream) {
  if (end > slot_bytes_ || (end % kTileBytes != 0 && end != slot_bytes_))
    return BASCULE_CUDA_CODE(cudaErrorInvalidValue);
  const std::uint64_t tiles = tiles_of(end);
  if (tiles <= tiles_done_) return {};
  const DeviceGuard guard(device());
  BASCULE_CUDA_PASS(guard.result());
  const auto kernel = table_.computes()       ? computing_kernel()
                      : table_.is_irregular() ? irregular_kernel()
                                              : pack_tiles<PackKind::kPlain>;
  BASCULE_CUDA_CHECK(launch_tiles(kernel, tiles - tiles_done_, stream, table_.view(), slot_, tiles_done_, target_));
  BASCULE_CUDA_PASS(pack_transposed(table_, slot_, tiles_done_, tiles, page_sums_.as<PageSums>(), target_, stream));
  if (target_.totals != nullptr) cell_.launched(tiles - tiles_done_);
  tiles_done_ = tiles;
  return {};
}

}  // namespace bascule::inline v0::kernels::cuda
