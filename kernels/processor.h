// The operations that depend on the processor, looked up once. The plain versions run everywhere and are the reference;
// the vector versions give the same bits.
#pragma once

#include <cstddef>

#include <bascule/kernels/cast_run.h>
#include <bascule/kernels/digest_function.h>
#include <bascule/kernels/multiply_add.h>

namespace bascule::inline v0::kernels {

// Makes bytes [begin, end) of a slot's tile from a run of source elements: casts them, stores them past the caches,
// and, unless `sums` is null, adds them to the sums of the tile's pages. The range must be whole lines of kLineBytes,
// and the tile aligned to a line. The stores are weakly ordered, so the thread must call flush() before it announces
// them.
using TileWriter = void (*)(const std::byte* source, std::byte* tile, std::size_t begin, std::size_t end,
                            TileSums* sums);

// The same for a scaled segment (arithmetic.h): each element is multiplied by `scale` before it is rounded.
using ScaledWriter = void (*)(const std::byte* source, float scale, std::byte* tile, std::size_t begin, std::size_t end,
                              TileSums* sums);

struct Processor {
  RunCast (*run_cast)(DType from, DType to);            // null if from == to, or if pack lacks the cast
  PageSums (*page_sums)(const std::byte* page);         // of a whole page, at any alignment
  TileWriter (*tile_writer)(DType from, DType to);      // null if there is none; cast first, then copy
  ScaledWriter (*scaled_writer)(DType from, DType to);  // null if there is none; scale first, then copy
  MakePanel (*make_panel)(DType right);                 // of a type that widens to F32
  MultiplyAdd multiply_add;
  void (*flush)();  // orders the stores of TileWriters and ScaledWriters before later ones
};

const Processor& plain_processor();
const Processor* avx2_processor();    // null if this machine lacks AVX2, F16C or FMA
const Processor* avx512_processor();  // null if it also lacks AVX-512 with BF16

const Processor& best_processor();

}  // namespace bascule::inline v0::kernels
