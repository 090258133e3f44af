#include <bascule/trainer_ref/ops/draw.h>
#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/real.cuh>
#include <bascule/trainer_ref/ops/row_scan.cuh>

namespace bascule::ref::ops {
namespace {

using Mass = unsigned long long;

constexpr float kLog2E = 1.4426950408889634F;
constexpr float kOne = 1.099511627776e12F;  // 2^40
constexpr int kBins = 2048;

// Tokens in falling order have growing keys: their bits, reversed in order. Both zeros have one key.
__device__ std::uint32_t key_of(float x) {
  const std::uint32_t bits = __float_as_uint(x + 0.0F);
  const std::uint32_t rising = bits & 0x80000000U ? ~bits : bits | 0x80000000U;
  return ~rising;
}

// What tokens of one key have in common, and the totals of those before them in falling order.
struct Crossing {
  std::uint32_t key;
  Mass weight;  // of one token
  Mass mass_before;
  unsigned count_before;
};

struct Sum {
  Mass mass;
  unsigned count;
};

struct Memory {
  Mass mass[kBins];
  unsigned count[kBins];
  RowScan::Memory scan;
  Mass weight;
  std::uint32_t bin;
  Sum before;
  float highest;
  int token;
  bool sound;
};

// One row of logits under one temperature, for the threads of a block together.
template <typename T>
struct Weighed {
  RowScan scan;
  const T* logits;
  int size;
  float highest;
  float scale;  // inverse temperature · log2(e)
  Mass least;   // tokens of less weight are left out

  __device__ Mass weight(float x) const {
    const Mass weight = static_cast<Mass>(exp2f((x - highest) * scale) * kOne);
    return weight;
  }
  // A first, coarse order that spreads well: 64 bins for each halving of the weight.
  __device__ std::uint32_t bin(float x) const {
    return static_cast<std::uint32_t>(fminf((highest - x) * scale * 64.0F, static_cast<float>(kBins - 1)));
  }
};

// The place in falling order at which the sum of weights (or the number of tokens) first reaches `target`, which the
// row must reach. Searches bins first, then the found bin's keys, from their upper bits to their lower ones.
template <bool kCounts, typename T>
__device__ Crossing descend(const Weighed<T>& row, Mass target, Memory& memory) {
  constexpr int kLevels =
      sizeof(T) == 2 ? 3 : 4;  // all bits of the lower half of a widened bfloat16's key are its sign
  std::uint32_t bin = 0, prefix = 0;
  Sum before{};
  for (int level = 0; level < kLevels; ++level) {
    const int shift = level == 0 ? 0 : level == 1 ? 21 : level == 2 ? 10 : 0;
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += RowScan::kThreads) memory.mass[i] = memory.count[i] = 0;
    __syncthreads();
    row.scan.each(row.logits, row.size, [&](int, float x) {
      const Mass weight = row.weight(x);
      if (weight < row.least) return;
      std::uint32_t at = row.bin(x);
      if (level > 0) {
        if (at != bin) return;
        const std::uint32_t key = key_of(x);
        const std::uint32_t known = level == 1 ? 0 : level == 2 ? key >> 21 : key >> 10;
        if (level > 1 && known != prefix) return;
        at = key >> shift & (level == 3 ? 1023U : 2047U);
      }
      atomicAdd(&memory.mass[at], weight);
      atomicAdd(&memory.count[at], 1U);
    });
    __syncthreads();
    // Each thread sums kBins / kThreads bins; the one whose bins hold the target reports it.
    constexpr int kEach = kBins / RowScan::kThreads;
    const int first = static_cast<int>(threadIdx.x) * kEach;
    Sum own{};
    for (int i = first; i < first + kEach; ++i) {
      own.mass += memory.mass[i];
      own.count += memory.count[i];
    }
    Sum sum{RowScan::before(own.mass, memory.scan), 0};
    sum.count = static_cast<unsigned>(RowScan::before(static_cast<Mass>(own.count), memory.scan));
    sum.mass += before.mass;
    sum.count += before.count;
    for (int i = first; i < first + kEach; ++i) {
      const Sum next{sum.mass + memory.mass[i], sum.count + memory.count[i]};
      const Mass reached = kCounts ? sum.count : sum.mass, reaches = kCounts ? next.count : next.mass;
      if (reached < target && target <= reaches) {
        memory.bin = static_cast<std::uint32_t>(i);
        memory.before = sum;
      }
      sum = next;
    }
    __syncthreads();
    before = memory.before;
    const std::uint32_t found = memory.bin;
    if (level == 0)
      bin = found;
    else
      prefix = level == 1 ? found : level == 2 ? prefix << 11 | found : prefix << 10 | found;
    __syncthreads();
  }
  const bool negative = sizeof(T) == 2 && prefix >> 21 != 0;
  const std::uint32_t key = sizeof(T) == 2 ? prefix << 10 | (negative ? 0U : 1023U) : prefix;
  row.scan.each(row.logits, row.size, [&](int, float x) {
    if (key_of(x) == key) memory.weight = row.weight(x);  // all writers write the same
  });
  __syncthreads();
  const Mass weight = memory.weight;
  __syncthreads();
  return {key, weight, before.mass, before.count};
}

// In the order of ids: the token with which the sum of `measure` first reaches `target`.
template <typename T, typename Measure>
__device__ int find_by_id(const Weighed<T>& row, Mass target, const Measure& measure, Memory& memory) {
  Mass own = 0;
  row.scan.each(row.logits, row.size, [&](int, float x) { own += measure(x); });
  const Mass before = RowScan::before_warp(own, memory.scan);
  const Mass all = RowScan::warp_total(own);
  if (before < target && target <= before + all) {  // a whole warp finds it in its part
    const int token = row.scan.find(row.logits, row.size, target - before, measure);
    if (threadIdx.x % 32 == 0) memory.token = token;
  }
  __syncthreads();
  const int token = memory.token;
  __syncthreads();
  return token;
}

// The highest logit and its smallest id; none if a logit is NaN or the highest is infinite.
template <typename T>
__device__ bool find_highest(const RowScan& scan, const T* logits, int size, Memory& memory) {
  float highest = -INFINITY;
  int id = size;
  bool sound = true;
  scan.each(logits, size, [&](int i, float x) {
    sound = sound && x == x;
    if (x > highest) {
      highest = x;
      id = i;
    }
  });
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, highest, lanes);
    const int at = __shfl_xor_sync(0xffffffffU, id, lanes);
    if (other > highest || (other == highest && at < id)) {
      highest = other;
      id = at;
    }
  }
  sound = __all_sync(0xffffffffU, sound);
  __shared__ float of_warp[RowScan::kWarps];
  __shared__ int ids[RowScan::kWarps];
  __shared__ bool sounds[RowScan::kWarps];
  if (threadIdx.x % 32 == 0) {
    of_warp[threadIdx.x / 32] = highest;
    ids[threadIdx.x / 32] = id;
    sounds[threadIdx.x / 32] = sound;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 0; w < RowScan::kWarps; ++w) {
      sound = sound && sounds[w];
      if (of_warp[w] > highest || (of_warp[w] == highest && ids[w] < id)) {
        highest = of_warp[w];
        id = ids[w];
      }
    }
    memory.highest = highest;
    memory.token = id;
    memory.sound = sound && isfinite(highest);
  }
  __syncthreads();
  return memory.sound;
}

template <typename T>
__device__ Mass total_of(const Weighed<T>& row, Memory& memory) {
  Mass own = 0;
  row.scan.each(row.logits, row.size, [&](int, float x) {
    const Mass weight = row.weight(x);
    own += weight < row.least ? 0 : weight;
  });
  return RowScan::total(own, memory.scan);
}

template <typename T>
__device__ Mass count_of(const Weighed<T>& row, Memory& memory) {
  Mass own = 0;
  row.scan.each(row.logits, row.size, [&](int, float x) { own += row.weight(x) >= row.least ? 1 : 0; });
  return RowScan::total(own, memory.scan);
}

__device__ Mass at_least_one(double x, Mass most) { return min(max(static_cast<Mass>(x), Mass{1}), most); }

// What remains after the cuts: its mass, and whether tokens are taken in falling order.
template <typename T>
__device__ Mass cut(const Weighed<T>& row, const Draw& draw, bool& falls, Memory& memory) {
  Mass kept = total_of(row, memory);
  falls = draw.top_p < 1;
  if (draw.top_k > 0) {
    if (static_cast<Mass>(draw.top_k) < count_of(row, memory)) {
      const Crossing last = descend<true>(row, static_cast<Mass>(draw.top_k), memory);
      kept = last.mass_before + (static_cast<Mass>(draw.top_k) - last.count_before) * last.weight;
      falls = true;
    }
  }
  if (draw.top_p < 1) {
    const Crossing last = descend<false>(
        row, at_least_one(ceil(static_cast<double>(draw.top_p) * static_cast<double>(kept)), kept), memory);
    const Mass wanted =
        at_least_one(ceil(static_cast<double>(draw.top_p) * static_cast<double>(kept)), kept) - last.mass_before;
    kept = last.mass_before + (wanted + last.weight - 1) / last.weight * last.weight;
  }
  return kept;
}

template <typename T>
__device__ int draw_token(const Weighed<T>& row, const Draw& draw, Memory& memory) {
  bool falls = false;
  const Mass kept = cut(row, draw, falls, memory);
  const Mass target = at_least_one(draw.number * static_cast<double>(kept) + 1, kept);
  if (!falls)
    return find_by_id(
        row, target,
        [&](float x) {
          const Mass weight = row.weight(x);
          return weight < row.least ? Mass{0} : weight;
        },
        memory);
  const Crossing at = descend<false>(row, target, memory);
  const Mass place = (target - at.mass_before + at.weight - 1) / at.weight;  // among tokens of that key, from 1
  return find_by_id(
      row, place, [&](float x) { return key_of(x) == at.key ? Mass{1} : Mass{0}; }, memory);
}

// The `count` likeliest tokens, one after the other.
template <typename T>
__device__ void tell_top(const Weighed<T>& row, TopToken* top, int count, double log_total, float inverse,
                         Memory& memory) {
  std::uint64_t last = 0;  // key and id of the previous one, plus one
  for (int i = 0; i < count; ++i) {
    std::uint64_t next = ~std::uint64_t{0};
    row.scan.each(row.logits, row.size, [&](int id, float x) {
      const std::uint64_t at = static_cast<std::uint64_t>(key_of(x)) << 32 | static_cast<std::uint32_t>(id);
      if (at >= last) next = min(next, at);
    });
    next = RowScan::least(next, memory.scan);
    if (next == ~std::uint64_t{0}) return;  // none is left
    last = next + 1;
    if (threadIdx.x == 0) {
      const int id = static_cast<int>(next & 0xffffffffU);
      top[i] = {
          id, static_cast<float>((static_cast<double>(to_float(row.logits[id])) - row.highest) * inverse - log_total)};
    }
  }
}

// Looks for the row's likeliest token; none if the row has numbers that are not sound.
template <typename T>
__device__ bool weigh(Weighed<T>& row, int& likeliest, const T* logits, int vocabulary, float inverse, Memory& memory) {
  const RowScan scan = RowScan::over(logits, vocabulary);
  if (!find_highest(scan, logits, vocabulary, memory)) return false;
  row = {scan, logits, vocabulary, memory.highest, inverse * kLog2E, 0};
  likeliest = memory.token;
  __syncthreads();
  return true;
}

template <typename T>
__device__ int choose(Weighed<T> row, int likeliest, const Draw& draw, Memory& memory) {
  if (draw.token >= 0) return draw.token;
  if (draw.inverse_temperature == 0) return likeliest;
  // Rounded as the host compares: a weight below min_p is left out.
  row.least = static_cast<Mass>(ceil(static_cast<double>(draw.min_p) * static_cast<double>(kOne)));
  return draw_token(row, draw, memory);
}

// The log-probabilities of `token` and of the likeliest ones, at the inverse temperature `told`.
template <typename T>
__device__ Drawn report(Weighed<T> row, int token, float told, const Draw& draw, TopToken* tops, Memory& memory) {
  row.scale = told * kLog2E;
  const double log_total = log(static_cast<double>(total_of(row, memory)) / static_cast<double>(kOne));
  const float chosen = to_float(row.logits[token]);
  Drawn result;
  result.token = token;
  result.logprob = (static_cast<double>(chosen) - row.highest) * told - log_total;
  if (draw.top > 0 || draw.token >= 0) {
    Mass likelier = 0;
    row.scan.each(row.logits, row.size, [&](int, float x) { likelier += x > chosen ? 1 : 0; });
    result.rank = 1 + static_cast<std::int32_t>(RowScan::total(likelier, memory.scan));
    if (draw.top > 0)
      tell_top(row, tops + static_cast<std::size_t>(blockIdx.x) * kMostTop, min(draw.top, kMostTop), log_total, told,
               memory);
  }
  return result;
}

__device__ float inverse_of(const Draw& draw) { return draw.inverse_temperature == 0 ? 1 : draw.inverse_temperature; }

// One block per draw.
template <typename T>
__global__ void __launch_bounds__(RowScan::kThreads)
    draw_kernel(Drawn* drawn, TopToken* tops, const T* logits, int vocabulary, const Draw* draws) {
  __shared__ Memory memory;
  const Draw draw = draws[blockIdx.x];
  if (draw.adjusted >= 0) return;
  Weighed<T> row;
  int likeliest = 0;
  Drawn result;
  const float inverse = inverse_of(draw);
  if (weigh(row, likeliest, logits + static_cast<std::size_t>(draw.row) * static_cast<std::size_t>(vocabulary),
            vocabulary, inverse, memory))
    result = report(row, choose(row, likeliest, draw, memory), draw.raw ? 1 : inverse, draw, tops, memory);
  if (threadIdx.x == 0) drawn[blockIdx.x] = result;
}

// Draws from adjusted logits, and reports raw log-probabilities from the model's.
template <typename T>
__global__ void __launch_bounds__(RowScan::kThreads)
    draw_adjusted_kernel(Drawn* drawn, TopToken* tops, const float* adjusted, const T* logits, int vocabulary,
                         const Draw* draws) {
  __shared__ Memory memory;
  const Draw draw = draws[blockIdx.x];
  if (draw.adjusted < 0) return;
  Weighed<float> row;
  int likeliest = 0;
  Drawn result;
  const float inverse = inverse_of(draw);
  if (weigh(row, likeliest, adjusted + static_cast<std::size_t>(draw.adjusted) * static_cast<std::size_t>(vocabulary),
            vocabulary, inverse, memory)) {
    const int token = choose(row, likeliest, draw, memory);
    if (!draw.raw) {
      result = report(row, token, inverse, draw, tops, memory);
    } else if (Weighed<T> raw;
               weigh(raw, likeliest, logits + static_cast<std::size_t>(draw.row) * static_cast<std::size_t>(vocabulary),
                     vocabulary, 1, memory)) {
      result = report(raw, token, 1, draw, tops, memory);
    }
  }
  if (threadIdx.x == 0) drawn[blockIdx.x] = result;
}

}  // namespace

CudaResult draw_tokens(Drawn* drawn, TopToken* tops, const void* logits, DType dtype, std::int64_t vocabulary,
                       const Draw* draws, std::int64_t count, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    return BASCULE_CUDA_RESULT(launch(&draw_kernel<T>, dim3(static_cast<unsigned>(count)), RowScan::kThreads, 0, stream,
                                      drawn, tops, static_cast<const T*>(logits), static_cast<int>(vocabulary), draws));
  });
}

CudaResult draw_adjusted_tokens(Drawn* drawn, TopToken* tops, const float* adjusted, const void* logits, DType dtype,
                                std::int64_t vocabulary, const Draw* draws, std::int64_t count, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    return BASCULE_CUDA_RESULT(launch(&draw_adjusted_kernel<T>, dim3(static_cast<unsigned>(count)), RowScan::kThreads,
                                      0, stream, drawn, tops, adjusted, static_cast<const T*>(logits),
                                      static_cast<int>(vocabulary), draws));
  });
}

}  // namespace bascule::ref::ops
