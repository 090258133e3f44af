// The tensor cores' instruction for bfloat16 tiles of 16 · 8 · 16, and how its operands come from shared memory. See
// PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix". A warp calls these together.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace bascule::ref::ops {

// A tile of rows of D bfloat16 in shared memory, in chunks of 16 bytes, permuted within each row so that one chunk of
// eight rows lies in different banks.
template <int D>
struct SharedTile {
  static constexpr int kChunks = D / 8;  // of a row
  __nv_bfloat16* data;

  __device__ static int offset(int row, int chunk) { return row * D + (chunk ^ (row % 8)) * 8; }
  __device__ std::uint32_t address(int row, int chunk) const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(data + offset(row, chunk)));
  }
  // Copies 16 bytes from device memory, or zeros, as part of the next commit_copies().
  __device__ void copy(int row, int chunk, const __nv_bfloat16* from, bool present) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address(row, chunk)), "l"(from),
                 "r"(present ? 16 : 0));
  }
};

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::); }
// Waits until at most `kLeft` of the last committed groups are in progress.
template <int kLeft>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft));
}

__device__ inline void load_matrices(std::uint32_t (&x)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address));
}
__device__ inline void load_turned(std::uint32_t (&x)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address));
}

// sum [16, 8] += a [16, 16] · b [16, 8]. A lane has rows lane/4 and lane/4 + 8 of `sum`, columns 2 (lane % 4) and the
// next.
__device__ inline void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace bascule::ref::ops
