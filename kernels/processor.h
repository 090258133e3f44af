// The three operations that depend on the processor, looked up once. The plain ones run everywhere and are the
// reference; the vector ones give the same bits.
#pragma once

#include <cstddef>

#include <bascule/kernels/cast_run.h>
#include <bascule/kernels/digest_function.h>

namespace bascule::inline v0::kernels {

// Makes bytes [begin, end) of a slot's tile, in whole lines of kLineBytes of a tile aligned to 32 bytes, from a run of
// source elements: casts, stores past the caches, and adds to the sums of the tile's pages unless `sums` is null. The
// stores are weakly ordered: the thread calls flush() before it announces them.
using TileWriter = void (*)(const std::byte* source, std::byte* tile, std::size_t begin, std::size_t end,
                            TileSums* sums);
inline constexpr std::size_t kLineBytes = 64;

struct Processor {
  RunCast (*run_cast)(DType from, DType to);        // null if from == to, or without can_cast()
  PageSums (*page_sums)(const std::byte* page);     // of a whole page, at any alignment
  TileWriter (*tile_writer)(DType from, DType to);  // null if there is none: cast first, then copy
  void (*flush)();                                  // orders the stores of TileWriters before later ones
};

const Processor& plain_processor();
const Processor* avx2_processor();  // null if this machine lacks AVX2 or F16C

const Processor& best_processor();

}  // namespace bascule::inline v0::kernels
