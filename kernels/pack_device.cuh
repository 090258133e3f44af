// The kernel of cuda_pack.h: one block per tile. Tables without arithmetic have their own kernel, whose registers
// suffice for copies. The two are compiled in separate files, side by side, because each takes long.
#pragma once

#include <cstdint>

#include <bascule/kernels/arithmetic_device.cuh>
#include <bascule/kernels/cuda_table.h>
#include <bascule/kernels/element_device.cuh>
#include <bascule/kernels/launch_device.cuh>
#include <bascule/kernels/path_device.cuh>
#include <bascule/kernels/product_device.cuh>

namespace bascule::inline v0::kernels::cuda {

// Packs a whole tile from one or two runs.
struct PackRuns {
  const Runs& runs;
  std::byte* slot;
  std::uint64_t tile;
  const std::uint64_t* block_keys;
  const DigestOutput& target;

  template <TilePath kPath, int kAlignment>
  __device__ void operator()() const {
    using P = Path<kPath>;
    constexpr int kAtOnce = kAlignment == 16 ? P::kAtOnce : 1;
    const Place place = Place::of_thread<P::kWords>();
    ThreadSums<P::kWords> sums(place, block_keys);
    std::byte* const to = slot + tile * kTileBytes;
#pragma unroll 1
    for (std::uint32_t step = 0; step < kSteps; step += kAtOnce) {
      if constexpr (P::kWords == Words::kApart) {
        uint4 wide[kAtOnce][2];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            wide[u][i] =
                load<kAlignment, uint4>(runs.at<kPath>(place.byte_of(step + static_cast<std::uint32_t>(u), i)));
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const uint2 first = P::to_slot(wide[u][0]), second = P::to_slot(wide[u][1]);
          store<16>(to + place.byte_of(step + static_cast<std::uint32_t>(u), 0), first);
          store<16>(to + place.byte_of(step + static_cast<std::uint32_t>(u), 1), second);
          sums.add({first.x, first.y, second.x, second.y});
        }
      } else {
        uint4 words[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const std::byte* const from = runs.at<kPath>(place.byte_of(step + static_cast<std::uint32_t>(u), 0));
          if constexpr (kPath == TilePath::kCopy) {
            words[u] = load<kAlignment, uint4>(from);
          } else {
            words[u] = P::to_slot(load<kAlignment, uint2>(from));
          }
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          store<16>(to + place.byte_of(step + static_cast<std::uint32_t>(u), 0), words[u]);
          sums.add(words[u]);
        }
      }
    }
    if (target.wants(tile)) sums.finish(tile, target);
  }
};

// One element per lane; an element that a tile's border cuts is written only as far as it belongs to this piece.
template <bool kComputes>
__device__ void pack_piece(const Piece& piece, const TableView& table, std::byte* slot) {
  if (piece.kind == Piece::Kind::kRun)
    return copy_run(table.addresses[piece.index] + piece.tensor_offset, slot + piece.begin,
                    static_cast<std::uint32_t>(piece.end - piece.begin));
  const Segment& segment = table.segments[piece.index];
  const std::uint32_t tensor_bytes = bytes_of(segment.tensor_dtype), slot_bytes = bytes_of(segment.slot_dtype);
  const std::byte* const from = table.addresses[segment.tensor] + segment.tensor_offset;
  std::byte* const to = slot + segment.slot_offset;
  const std::uint64_t last = (piece.end + slot_bytes - 1) / slot_bytes;
#pragma unroll 4
  for (std::uint64_t element = piece.begin / slot_bytes + threadIdx.x % 32; element < last; element += 32) {
    const std::byte* const at = from + place_of(segment, element).in_tensor * static_cast<std::int64_t>(tensor_bytes);
    std::uint64_t value = 0;
    if (kComputes && segment.arithmetic != kNoArithmetic) {
      const Arithmetic& arithmetic = table.arithmetic[segment.arithmetic];
      value = round_to(segment.slot_dtype,
                       computed(arithmetic, table.addresses, element, f32_of(segment.tensor_dtype, at)));
    } else {
      value = cast_element(load_element(at, tensor_bytes), segment.tensor_dtype, segment.slot_dtype);
    }
    const std::uint64_t begin = element * slot_bytes;
    if (begin >= piece.begin && begin + slot_bytes <= piece.end) {
      store_element(to + begin, value, slot_bytes);
    } else {
      store_bytes(to + begin, value, static_cast<std::uint32_t>(begin < piece.begin ? piece.begin - begin : 0),
                  static_cast<std::uint32_t>(begin + slot_bytes > piece.end ? piece.end - begin : slot_bytes));
    }
  }
}

// Starts with tile `first_tile`. Products need the registers of two blocks.
template <bool kComputes>
__global__ void __launch_bounds__(kThreads, kComputes ? 1 : 2)
    pack_tiles(TableView table, std::byte* slot, std::uint64_t first_tile, DigestOutput target) {
  const std::uint64_t number = first_tile + blockIdx.x;
  const Tile tile = table.tiles[number];
  const std::uint64_t* const block_keys = make_block_keys();
  if constexpr (kComputes) {
    if (tile.path == TilePath::kProduct) {
      __shared__ PackProduct::Group groups[PackProduct::kGroups];
      return PackProduct(groups, block_keys).run(table.segments[tile.first_piece], table, slot, first_tile, target);
    }
  }
  if (tile.path != TilePath::kPieces) {
    const Runs runs(tile, table.addresses);
    return by_path(tile.path, runs.alignment(), PackRuns{runs, slot, number, block_keys, target});
  }
  for (std::uint32_t i = threadIdx.x / 32; i < tile.pieces; i += kThreads / 32)
    pack_piece<kComputes>(table.pieces[tile.first_piece + i], table, slot);
  if (!target.wants(number)) return;
  __syncthreads();  // the tile is read again from the slot, which is in the caches now
  LoadedTile::load(slot, number, target.bytes).sums(block_keys).finish(number, target);
}

using PackKernel = void (*)(TableView table, std::byte* slot, std::uint64_t first_tile, DigestOutput target);
PackKernel computing_kernel();  // pack_tiles<true>, of cuda_pack_arithmetic.cu

}  // namespace bascule::inline v0::kernels::cuda
