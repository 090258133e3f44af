// How a block of threads goes over a row of numbers in device memory: each warp over a part of it, in order, 16 bytes
// per lane if the row is aligned. Also sums over the block.
#pragma once

#include <cstdint>

#include <bascule/trainer_ref/ops/real.cuh>

namespace bascule::ref::ops {

struct RowScan {
  static constexpr int kThreads = 512, kWarps = kThreads / 32;
  using Mass = unsigned long long;
  struct Memory {
    Mass of_warp[kWarps];
  };

  bool aligned;
  int part;  // of a warp, in elements: a multiple of what it reads at once

  template <typename T>
  __device__ static RowScan over(const T* row, int size) {
    const int at_once = 32 * kWidth<T>;
    return {reinterpret_cast<std::uintptr_t>(row) % 16 == 0,
            ((size + kWarps - 1) / kWarps + at_once - 1) / at_once * at_once};
  }

  // Calls visit(id, number) for everything this lane reads, in order.
  template <typename T, typename Visit>
  __device__ void each(const T* row, int size, const Visit& visit) const {
    const int begin = static_cast<int>(threadIdx.x / 32) * part, end = min(begin + part, size);
    for (int i = begin + static_cast<int>(threadIdx.x % 32) * kWidth<T>; i < end; i += 32 * kWidth<T>)
      each_of(row, i, end, visit);
  }

  // A warp calls it together. Returns the id in its part at which the sum of `measure`, by rising id, reaches `target`.
  template <typename T, typename Measure>
  __device__ int find(const T* row, int size, Mass target, const Measure& measure) const {
    const int begin = static_cast<int>(threadIdx.x / 32) * part, end = min(begin + part, size);
    Mass sum = 0;  // of the part read so far
    for (int first = begin; first < end; first += 32 * kWidth<T>) {
      const int mine = first + static_cast<int>(threadIdx.x % 32) * kWidth<T>;
      Mass own = 0;
      if (mine < end) each_of(row, mine, end, [&](int, float x) { own += measure(x); });
      const Mass upto = inclusive(own);
      const unsigned reaches = __ballot_sync(0xffffffffU, sum + upto >= target);
      if (reaches != 0) {
        const int lane = __ffs(static_cast<int>(reaches)) - 1;
        int id = -1;
        if (static_cast<int>(threadIdx.x % 32) == lane) {
          Mass at = sum + upto - own;
          each_of(row, mine, end, [&](int i, float x) {
            at += measure(x);
            if (id < 0 && at >= target) id = i;
          });
        }
        return __shfl_sync(0xffffffffU, id, lane);
      }
      sum += __shfl_sync(0xffffffffU, upto, 31);
    }
    return -1;
  }

  __device__ static Mass inclusive(Mass x) {  // over the lanes up to this one
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const Mass lower = __shfl_up_sync(0xffffffffU, x, static_cast<unsigned>(lanes));
      if (static_cast<int>(threadIdx.x % 32) >= lanes) x += lower;
    }
    return x;
  }
  __device__ static Mass warp_total(Mass x) { return __shfl_sync(0xffffffffU, inclusive(x), 31); }

  // Sums that all threads compute together: over the warps before this thread's warp; over the threads before this one;
  // over all threads.
  __device__ static Mass before_warp(Mass x, Memory& memory) {
    const Mass all = warp_total(x);
    if (threadIdx.x % 32 == 0) memory.of_warp[threadIdx.x / 32] = all;
    __syncthreads();
    Mass sum = 0;
    for (int w = 0; w < static_cast<int>(threadIdx.x / 32); ++w) sum += memory.of_warp[w];
    __syncthreads();
    return sum;
  }
  __device__ static Mass before(Mass x, Memory& memory) { return before_warp(x, memory) + inclusive(x) - x; }
  __device__ static Mass total(Mass x, Memory& memory) {
    const Mass all = warp_total(x);
    if (threadIdx.x % 32 == 0) memory.of_warp[threadIdx.x / 32] = all;
    __syncthreads();
    Mass sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += memory.of_warp[w];
    __syncthreads();
    return sum;
  }
  __device__ static Mass least(Mass x, Memory& memory) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = min(x, __shfl_xor_sync(0xffffffffU, x, lanes));
    if (threadIdx.x % 32 == 0) memory.of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) x = min(x, memory.of_warp[w]);
    __syncthreads();
    return x;
  }

 private:
  template <typename T, typename Visit>
  __device__ void each_of(const T* row, int i, int end, const Visit& visit) const {
    if (aligned && i + kWidth<T> <= end) {
      float x[kWidth<T>];
      load(row + i, x);
#pragma unroll
      for (int j = 0; j < kWidth<T>; ++j) visit(i + j, x[j]);
    } else {
      for (int j = i; j < min(i + kWidth<T>, end); ++j) visit(j, to_float(row[j]));
    }
  }
};

}  // namespace bascule::ref::ops
