// Low-rank updates (arXiv 2106.09685) of the products of a step's tokens, each token's by its own adapter. A product
// may join several linear modules, its parts p, which read the same x [N, in] and write one after the other to the
// update [N, out]. The kernel that reads the product adds the update to it (rms_norm.h, rotate.h, silu_mul.h), so both
// are computed side by side.
//
//   shrink   low[n, p] = A_p x[n]                            A_p [rank, in]
//   expand   update[n, part p] = scale_p · B_p low[n, p]     B_p [out_p, rank]
//
// Sums are in float32, as is `low`; the update is rounded to x's type. If x is bfloat16, A is rounded to it, as under
// PyTorch's autocast. A tile is up to kTileRows tokens of one adapter, or of none, so that they share each read of its
// factors. Every token is in a tile: the update of one without an adapter is zero.
#pragma once

#include <array>
#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>
#include <bascule/trainer_ref/ops/plain_real.h>

namespace bascule::ref::ops {

inline constexpr int kTileRows = 8;
inline constexpr int kMostParts = 3;

// The factors of one module; both are of `dtype`, F32 or BF16, which may differ from x's.
struct LowRankFactors {
  const void* a = nullptr;
  const void* b = nullptr;
  float scale = 1;
  std::int32_t rank = 0;  // 0: the adapter does not change this module
  DType dtype = DType::kF32;
};

struct AdapterTile {
  const LowRankFactors* factors = nullptr;  // of all modules of one adapter, in device memory; null: of none
  std::int32_t count = 0;                   // 0: padding
  std::array<std::int32_t, kTileRows> tokens = {};
};

// One product.
struct LowRankProduct {
  const AdapterTile* tiles = nullptr;
  std::int64_t tile_count = 0;
  int rank = 0;   // the highest of the step's adapters
  int first = 0;  // the number of its first part among an adapter's modules
  int parts = 1;
  std::array<int, kMostParts> out = {};  // rows of each part
  std::int64_t in = 0;                   // a multiple of 8
};

// The room for `low`. For x in bfloat16 it holds sums over parts of x, which expand() adds up.
std::int64_t low_floats(const LowRankProduct& product, DType dtype);

// `low` has low_floats(); x and the update are of `dtype`, aligned to 16 bytes. All memory is the device's.
kernels::cuda::CudaResult shrink(float* low, const void* x, DType dtype, const LowRankProduct& product,
                                 kernels::cuda::Stream stream);
kernels::cuda::CudaResult expand(void* update, const float* low, DType dtype, const LowRankProduct& product,
                                 kernels::cuda::Stream stream);

namespace plain {
// Both, with host memory throughout.
void low_rank(Reals update, Reals x, const LowRankProduct& product);
}  // namespace plain

}  // namespace bascule::ref::ops
