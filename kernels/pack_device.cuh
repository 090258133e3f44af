// The kernels of cuda_pack.h: one block per tile. There is one for each kind of table, since the registers that one
// path needs slow the others down. They are compiled in separate files, side by side, because each takes long.
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

// Packs a tile of copies at any addresses. `load(step)` starts a lane's loads of 16 bytes; four are in flight together.
template <typename Load>
__device__ void pack_shifted(Load load, const Place& place, std::byte* to, ThreadSums<Words::kAdjacent>& sums) {
#pragma unroll 1
  for (std::uint32_t step = 0; step < kSteps; step += 4) {
    const Shifted loads[] = {load(step), load(step + 1), load(step + 2), load(step + 3)};
#pragma unroll
    for (std::uint32_t u = 0; u < 4; ++u) {
      const uint4 words = loads[u].get();
      store<16>(to + place.byte_of(step + u, 0), words);
      sums.add(words);
    }
  }
}

// The same of one or two runs.
__device__ inline void pack_shifted(const Runs& runs, std::byte* slot, std::uint64_t tile,
                                    const std::uint64_t* block_keys, const DigestOutput& target) {
  const Place place = Place::of_thread<Words::kAdjacent>();
  ThreadSums<Words::kAdjacent> sums(place, block_keys);
  const auto load = [&](std::uint32_t step) -> Shifted {
    const std::uint32_t at = place.byte_of(step, 0);
    const std::byte* const from = at < runs.split ? runs.first : runs.second - runs.split;
    return {from + at, from + (at < runs.split ? 0 : runs.split), from + (at < runs.split ? runs.split : kTileBytes)};
  };
  pack_shifted(load, place, slot + tile * kTileBytes, sums);
  if (target.wants(tile)) sums.finish(tile, target);
}

// Packs a tile of TilePath::kPages: each warp one page, whatever pieces it has.
class PackPages {
 public:
  // In the block's shared memory.
  struct Pieces {
    const std::byte* from[kMostPagesPieces];  // where byte 0 of the tile would lie, if the piece began there
    std::uint32_t ends[kMostPagesPieces];     // in the tile
  };

  __device__ PackPages(Pieces& pieces, const Tile& tile, const TableView& table, std::uint64_t number)
      : pieces_(pieces), count_(tile.pieces) {
    const std::uint32_t i = threadIdx.x;
    if (i < count_) {
      const Piece& piece = table.pieces[tile.first_piece + i];
      pieces.from[i] = table.addresses[piece.index] + piece.tensor_offset - (piece.begin - number * kTileBytes);
      pieces.ends[i] = static_cast<std::uint32_t>(piece.end - number * kTileBytes);
    }
    aligned_ = __syncthreads_and(i >= count_ || reinterpret_cast<std::uintptr_t>(pieces.from[i]) % 16 == 0) != 0;
  }

  __device__ void run(std::byte* slot, std::uint64_t tile, const std::uint64_t* block_keys,
                      const DigestOutput& target) const {
    const Place place = Place::of_thread<Words::kAdjacent>();
    ThreadSums<Words::kAdjacent> sums(place, block_keys);
    std::byte* const to = slot + tile * kTileBytes;
    std::uint32_t piece = first(place.byte_of(0, 0));
    const auto go_on = [&](std::uint32_t at) {
      while (pieces_.ends[piece] <= at) ++piece;
    };
    if (aligned_) {
      uint4 words[kSteps];
#pragma unroll
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        const std::uint32_t at = place.byte_of(step, 0);
        go_on(at);
        words[step] = *reinterpret_cast<const uint4*>(pieces_.from[piece] + at);
      }
#pragma unroll
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        store<16>(to + place.byte_of(step, 0), words[step]);
        sums.add(words[step]);
      }
    } else {
      const auto load = [&](std::uint32_t step) -> Shifted {
        const std::uint32_t at = place.byte_of(step, 0);
        go_on(at);
        const std::byte* const from = pieces_.from[piece];
        return {from + at, from + (piece == 0 ? 0 : pieces_.ends[piece - 1]), from + pieces_.ends[piece]};
      };
      pack_shifted(load, place, to, sums);
    }
    if (target.wants(tile)) sums.finish(tile, target);
  }

 private:
  // The first piece that ends after byte `at` of the tile.
  __device__ std::uint32_t first(std::uint32_t at) const {
    std::uint32_t first = 0, last = count_ - 1;
    while (first < last) {
      const std::uint32_t middle = (first + last) / 2;
      pieces_.ends[middle] <= at ? first = middle + 1 : last = middle;
    }
    return first;
  }

  const Pieces& pieces_;
  std::uint32_t count_;
  bool aligned_;  // whether all pieces lie at multiples of 16 bytes
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

enum class PackKind {
  kPlain,      // takes tiles of kPages as pieces
  kIrregular,  // for many such tiles, and for tensors at any address; it is a little slower for others
  kComputes,   // for tables with arithmetic
};

// Starts with tile `first_tile`. Products need the registers of two blocks.
template <PackKind kKind>
__global__ void __launch_bounds__(kThreads, kKind == PackKind::kComputes ? 1 : 2)
    pack_tiles(TableView table, std::byte* slot, std::uint64_t first_tile, DigestOutput target) {
  const std::uint64_t number = first_tile + blockIdx.x;
  const Tile tile = table.tiles[number];
  // cuda_transpose.h packs these tiles. A block that is alone on its processor asks later: while it makes the keys, the
  // tile is still being loaded.
  if (kKind != PackKind::kComputes && tile.path == TilePath::kTransposed) return;
  const std::uint64_t* const block_keys = make_block_keys();
  if constexpr (kKind == PackKind::kComputes) {
    if (tile.path == TilePath::kTransposed) return;
    if (tile.path == TilePath::kProduct) {
      __shared__ PackProduct::Group groups[PackProduct::kGroups];
      return PackProduct(groups, block_keys).run(table.segments[tile.first_piece], table, slot, first_tile, target);
    }
  }
  if constexpr (kKind == PackKind::kIrregular) {
    if (tile.path == TilePath::kPages) {
      __shared__ PackPages::Pieces pieces;
      return PackPages(pieces, tile, table, number).run(slot, number, block_keys, target);
    }
    const Runs runs(tile, table.addresses);
    if (tile.path == TilePath::kCopy && runs.alignment() < 16)
      return pack_shifted(runs, slot, number, block_keys, target);
  }
  if (tile.path != TilePath::kPieces && tile.path != TilePath::kPages) {
    const Runs runs(tile, table.addresses);
    return by_path(tile.path, runs.alignment(), PackRuns{runs, slot, number, block_keys, target});
  }
  for (std::uint32_t i = threadIdx.x / 32; i < tile.pieces; i += kThreads / 32)
    pack_piece<kKind == PackKind::kComputes>(table.pieces[tile.first_piece + i], table, slot);
  if (!target.wants(number)) return;
  __syncthreads();  // the tile is read again from the slot, which is in the caches now
  LoadedTile::load(slot, number, target.bytes).sums(block_keys).finish(number, target);
}

using PackKernel = void (*)(TableView table, std::byte* slot, std::uint64_t first_tile, DigestOutput target);
// The kinds that are compiled in separate files.
PackKernel irregular_kernel();  // cuda_pack_irregular.cu
PackKernel computing_kernel();  // cuda_pack_arithmetic.cu

}  // namespace bascule::inline v0::kernels::cuda
