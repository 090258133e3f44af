#include <cuda_runtime_api.h>

#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/digest_device.cuh>
#include <bascule/kernels/launch_device.cuh>

namespace bascule::inline v0::kernels::cuda {
namespace {

// If there are plenty of tiles, a block takes this many in turn, which spreads its fixed cost: making the keys and
// adding to the totals.
constexpr std::uint64_t kTilesInTurn = 8, kPlenty = 16384;

// Digests tiles [first, last), `in_turn` per block; only one if the totals of tiles are wanted.
__global__ void __launch_bounds__(kThreads, 2)
    digest_tiles(const std::byte* slot, std::uint64_t first, std::uint64_t last, std::uint64_t in_turn,
                 DigestOutput target) {
  const std::uint64_t begin = first + blockIdx.x * in_turn, end = min(begin + in_turn, last);
  if (!target.wants(begin)) return;
  const std::uint64_t* const block_keys = make_block_keys();
  Digest of_warp;
#pragma unroll 1
  for (std::uint64_t tile = begin; tile < end; ++tile) {
    const Digest hash = LoadedTile::load(slot, tile, target.bytes).sums(block_keys).page_hash(tile, target);
    of_warp.low += hash.low;
    of_warp.high += hash.high;
  }
  give_hashes(of_warp, begin, end - begin, target);
}

}  // namespace

CudaResult DigestCell::make(DigestCell* made) {
  DigestCell cell;
  BASCULE_CUDA_PASS(DeviceMemory::make(sizeof(DigestTotals), &cell.totals_));
  BASCULE_CUDA_PASS(PinnedMemory::make(sizeof(DigestTotals), &cell.sums_));
  *made = std::move(cell);
  return {};
}

CudaResult DigestCell::target(std::uint64_t bytes, Stream stream, DigestOutput* target, std::uint64_t first_page,
                              const TileOutput& of_tiles) {
  if (tiles_of(bytes) > DigestTotals::kMostTiles) return BASCULE_CUDA_CODE(cudaErrorInvalidValue);
  if (missing_tiles_ != 0) BASCULE_CUDA_CHECK(cudaMemsetAsync(totals_.as<void>(), 0, sizeof(DigestTotals), stream));
  bytes_ = bytes;
  missing_tiles_ = tiles_of(bytes);
  *target = {.totals = totals_.as<DigestTotals>(),
             .sums = sums_.as<DigestTotals>(),
             .tiles = missing_tiles_,
             .bytes = bytes,
             .first_page = first_page,
             .of_tiles = of_tiles};
  return {};
}

TileTotal DigestCell::total() const {
  if (bytes_ == 0) return {};  // no tiles, so no sums
  const auto& [words] = *sums_.as<DigestTotals>();
  return {.low = DigestTotals::half(words[0], words[1]), .high = DigestTotals::half(words[2], words[3])};
}

CudaResult digest_piece(const void* slot, std::uint64_t first, std::uint64_t last, const DigestOutput& target,
                        DigestCell& cell, Stream stream) {
  if (reinterpret_cast<std::uintptr_t>(slot) % 16 != 0) return BASCULE_CUDA_CODE(cudaErrorMisalignedAddress);
  if (first == last) return {};
  const std::uint64_t in_turn = last - first < kPlenty || target.of_tiles.totals != nullptr ? 1 : kTilesInTurn;
  BASCULE_CUDA_CHECK(launch_tiles(digest_tiles, (last - first + in_turn - 1) / in_turn, stream,
                                  static_cast<const std::byte*>(slot), first, last, in_turn, target));
  if (target.totals != nullptr) cell.launched(last - first);
  return {};
}

CudaResult digest(const void* slot, std::uint64_t bytes, DigestCell& cell, Stream stream, const TileOutput& of_tiles) {
  DigestOutput target;
  BASCULE_CUDA_PASS(cell.target(bytes, stream, &target, 0, of_tiles));
  return digest_piece(slot, 0, target.tiles, target, cell, stream);
}

CudaResult total_tiles(const void* slot, std::uint64_t bytes, const TileOutput& of_tiles, Stream stream) {
  if (reinterpret_cast<std::uintptr_t>(slot) % 16 != 0) return BASCULE_CUDA_CODE(cudaErrorMisalignedAddress);
  const std::uint64_t tiles = tiles_of(bytes);
  if (tiles == 0) return {};
  BASCULE_CUDA_CHECK(launch_tiles(digest_tiles, tiles, stream, static_cast<const std::byte*>(slot), std::uint64_t{0},
                                  tiles, std::uint64_t{1}, DigestOutput{.bytes = bytes, .of_tiles = of_tiles}));
  return {};
}

}  // namespace bascule::inline v0::kernels::cuda
