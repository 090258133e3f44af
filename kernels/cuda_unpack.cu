#include <cuda_runtime_api.h>

#include <algorithm>

#include <bascule/kernels/cuda_unpack.h>
#include <bascule/kernels/element_device.cuh>
#include <bascule/kernels/launch_device.cuh>
#include <bascule/kernels/path_device.cuh>

namespace bascule::inline v0::kernels::cuda {
namespace {

// Unpacks a whole tile to one or two runs.
struct UnpackRuns {
  const Runs& runs;
  const std::byte* slot;
  std::uint64_t tile;
  const std::uint64_t* block_keys;
  const DigestOutput& target;

  template <TilePath kPath, int kAlignment>
  __device__ void operator()() const {
    using P = Path<kPath>;
    constexpr int kAtOnce = kAlignment == 16 ? P::kAtOnce : 1;
    const Place place = Place::of_thread<P::kWords>();
    ThreadSums<P::kWords> sums(place, block_keys);
    const std::byte* const from = slot + tile * kTileBytes;
#pragma unroll 1
    for (std::uint32_t step = 0; step < kSteps; step += kAtOnce) {
      uint4 words[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const std::uint32_t at = step + static_cast<std::uint32_t>(u);
        if constexpr (P::kWords == Words::kApart) {
          const auto first = load<16, uint2>(from + place.byte_of(at, 0));
          const auto second = load<16, uint2>(from + place.byte_of(at, 1));
          words[u] = {first.x, first.y, second.x, second.y};
        } else {
          words[u] = load<16, uint4>(from + place.byte_of(at, 0));
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const std::uint32_t at = step + static_cast<std::uint32_t>(u);
        std::byte* const to = runs.at<kPath>(place.byte_of(at, 0));
        if constexpr (P::kWords == Words::kApart) {
          store<kAlignment>(to, P::to_tensor({words[u].x, words[u].y}));
          store<kAlignment>(runs.at<kPath>(place.byte_of(at, 1)), P::to_tensor({words[u].z, words[u].w}));
        } else if constexpr (kPath == TilePath::kCopy) {
          store<kAlignment>(to, words[u]);
        } else {
          store<kAlignment>(to, P::to_tensor(words[u]));
        }
        sums.add(words[u]);
      }
    }
    if (target.wants(tile)) sums.finish(tile, target);
  }
};

__device__ void unpack_piece(const Piece& piece, const TableView& table, const std::byte* slot) {
  if (piece.kind == Piece::Kind::kRun)
    return copy_run(slot + piece.begin, table.addresses[piece.index] + piece.tensor_offset,
                    static_cast<std::uint32_t>(piece.end - piece.begin));
  const Segment& segment = table.segments[piece.index];
  const std::uint32_t tensor_bytes = bytes_of(segment.tensor_dtype), slot_bytes = bytes_of(segment.slot_dtype);
  std::byte* const to = table.addresses[segment.tensor] + segment.tensor_offset;
  const std::byte* const from = slot + segment.slot_offset;
#pragma unroll 4
  for (std::uint64_t element = piece.begin + threadIdx.x % 32; element < piece.end; element += 32) {
    const ElementPlace place = place_of(segment, element);
    const std::uint64_t value = load_element(from + place.in_slot * static_cast<std::int64_t>(slot_bytes), slot_bytes);
    store_element(to + place.in_tensor * static_cast<std::int64_t>(tensor_bytes),
                  cast_element(value, segment.slot_dtype, segment.tensor_dtype), tensor_bytes);
  }
}

// The order in which blocks take tiles: of each part of the slot one, in turns.
struct TileOrder {
  std::uint64_t tiles = 0, of_part = 0;
  std::uint32_t parts = 1;

  std::uint64_t blocks() const { return of_part * parts; }
  __device__ std::uint64_t tile_of(std::uint64_t block) const {
    return parts == 1 ? block : block % parts * of_part + block / parts;
  }
};

// One block per tile.
__global__ void __launch_bounds__(kThreads, 2)
    unpack_tiles(TableView table, TileOrder order, const std::byte* slot, DigestOutput target) {
  const std::uint64_t number = order.tile_of(blockIdx.x);
  if (number >= order.tiles) return;
  const Tile tile = table.tiles[number];
  const std::uint64_t* const block_keys = make_block_keys();
  if (tile.path != TilePath::kPieces) {
    const Runs runs(tile, table.addresses);
    return by_path(tile.path, runs.alignment(), UnpackRuns{runs, slot, number, block_keys, target});
  }
  if (target.wants(number)) LoadedTile::load(slot, number, target.bytes).sums(block_keys).finish(number, target);
  for (std::uint32_t i = threadIdx.x / 32; i < tile.pieces; i += kThreads / 32)
    unpack_piece(table.pieces[tile.first_piece + i], table, slot);  // from the caches
}

}  // namespace

CudaResult UnpackPlan::make(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                            UnpackPlan* made, std::uint32_t regions) {
  UnpackPlan plan;
  plan.regions_ = std::max(regions, 1U);
  BASCULE_CUDA_PASS(plan.set(unpack_table(segments, tensors, slot_bytes), tensors, slot_bytes));
  *made = std::move(plan);
  return {};
}

CudaResult UnpackPlan::unpack(const void* slot, std::span<void* const> tensors, bool want_digest, Stream stream,
                              const TileOutput& of_tiles) {
  if (reinterpret_cast<std::uintptr_t>(slot) % 16 != 0) return BASCULE_CUDA_CODE(cudaErrorMisalignedAddress);
  const DeviceGuard guard(device());
  BASCULE_CUDA_PASS(guard.result());
  BASCULE_CUDA_PASS(table_.set_addresses(tensors, stream));
  DigestOutput target{.bytes = slot_bytes_, .of_tiles = of_tiles};
  if (want_digest) BASCULE_CUDA_PASS(cell_.target(slot_bytes_, stream, &target, 0, of_tiles));
  if (table_.tiles() == 0) return {};
  const TileOrder order{
      .tiles = table_.tiles(), .of_part = (table_.tiles() + regions_ - 1) / regions_, .parts = regions_};
  BASCULE_CUDA_CHECK(launch_tiles(unpack_tiles, order.blocks(), stream, table_.view(), order,
                                  static_cast<const std::byte*>(slot), target));
  if (want_digest) cell_.launched(table_.tiles());
  return {};
}

}  // namespace bascule::inline v0::kernels::cuda
