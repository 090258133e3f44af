// What the kernels do differently from processor to processor: three operations, looked up once. The plain
// ones run everywhere and are the reference; the vector ones give the same bits.
#pragma once

#include <cstddef>

#include <bascule/kernels/cast_run.h>
#include <bascule/kernels/digest_function.h>

namespace bascule::inline v0::kernels {

// Makes bytes [begin, end) of a tile of a slot, in whole lines of kLineBytes of a tile aligned to 32 bytes, from a run
// of source elements: casts, stores past the caches, and adds what they contribute to the sums of the tile's pages,
// where these are wanted (`sums` is not null). The stores are weakly ordered: the thread calls flush() before it tells
// anyone.
using TileWriter = void (*)(const std::byte* source, std::byte* tile, std::size_t begin, std::size_t end,
                            TileSums* sums);
inline constexpr std::size_t kLineBytes = 64;

struct Processor {
  RunCast (*run_cast)(DType from, DType to);        // null where from == to or can_cast says no
  PageSums (*page_sums)(const std::byte* page);     // of a whole page, at any alignment
  TileWriter (*tile_writer)(DType from, DType to);  // null where there is none: cast first, copy then
  void (*flush)();                                  // orders the stores of TileWriters before those that follow
};

const Processor& plain_processor();
const Processor* avx2_processor();  // null where this machine has no AVX2 or no F16C

const Processor& best_processor();

}  // namespace bascule::inline v0::kernels
