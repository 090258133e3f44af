// Arithmetic with a product, with AVX-512 and its BF16 instructions, chosen at run time. All else is avx2.cpp's.
#include <bascule/kernels/processor.h>

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>

#define BASCULE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define BASCULE_AVX512_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"), always_inline)) inline

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its headers
#endif

namespace bascule::inline v0::kernels {
namespace avx512 {
namespace {

template <DType kFrom>
BASCULE_AVX512_INLINE __m512 load_f32(const std::byte* source) {
  if constexpr (kFrom == DType::kF32) {
    return _mm512_loadu_ps(source);
  } else {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    if constexpr (kFrom == DType::kBF16)
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    if constexpr (kFrom == DType::kF16) return _mm512_cvtph_ps(halves);
  }
}

// The processor rounds to BF16 like a cast, except that it takes denormals for zero and keeps the payload of a NaN.
BASCULE_AVX512_INLINE __m256i to_bf16(__m512 f32) {
  constexpr int kDenormalOrNan = 0xa1;
  __m256i made = (__m256i)_mm512_cvtneps_pbh(f32);
  if (__builtin_expect(_mm512_fpclass_ps_mask(f32, kDenormalOrNan), 0) != 0) {
    alignas(64) std::array<float, 16> values;
    _mm512_store_ps(values.data(), f32);
    plain_run_cast(DType::kF32, DType::kBF16)(reinterpret_cast<const std::byte*>(values.data()),
                                              reinterpret_cast<std::byte*>(&made), values.size());
  }
  return made;
}

template <DType kTo>
BASCULE_AVX512_INLINE void store_f32(std::byte* target, __m512 f32) {
  if constexpr (kTo == DType::kBF16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), to_bf16(f32));
  } else {
    const __mmask16 nan = _mm512_cmp_ps_mask(f32, f32, _CMP_UNORD_Q);
    if constexpr (kTo == DType::kF32) {
      _mm512_storeu_si512(target, _mm512_mask_mov_epi32(_mm512_castps_si512(f32), nan, _mm512_set1_epi32(0x7fffffff)));
    } else {
      const __m256i halves = _mm512_cvtps_ph(f32, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                          _mm256_mask_mov_epi16(halves, nan, _mm256_set1_epi16(0x7fff)));
    }
  }
}

// Some blocks of some rows, starting with row `row` and column `c`.
template <DType kW, DType kSlot, std::size_t kRows, std::size_t kBlocks>
BASCULE_AVX512_INLINE void multiply_add_blocks(const ProductRows& product, std::size_t row, std::size_t c) {
  const std::size_t rank = product.rank;
  const float* const left = product.left + row * rank;
  const float* panel = product.panel + c * rank;
  __m512 sums[kRows][kBlocks];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (std::size_t b = 0; b < kBlocks; ++b) sums[r][b] = _mm512_setzero_ps();
  for (std::size_t k = 0; k < rank; ++k, panel += kPanelColumns) {
    __m512 right[kBlocks];
#pragma GCC unroll 4
    for (std::size_t b = 0; b < kBlocks; ++b) right[b] = _mm512_loadu_ps(panel + b * rank * kPanelColumns);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kRows; ++r) {
      const __m512 factor = _mm512_set1_ps(left[r * rank + k]);
#pragma GCC unroll 4
      for (std::size_t b = 0; b < kBlocks; ++b) sums[r][b] = _mm512_fmadd_ps(factor, right[b], sums[r][b]);
    }
  }
  const __m512 scale = _mm512_set1_ps(product.scale);
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::byte* const w = product.w + (row + r) * product.w_stride + c * size_of(kW);
    std::byte* const to = product.target + (row + r) * product.target_stride + c * size_of(kSlot);
#pragma GCC unroll 4
    for (std::size_t b = 0; b < kBlocks; ++b) {
      const std::byte* const from = w + b * kPanelColumns * size_of(kW);
      _mm_prefetch(reinterpret_cast<const char*>(from + kRows * product.w_stride), _MM_HINT_T0);  // for the next rows
      store_f32<kSlot>(to + b * kPanelColumns * size_of(kSlot), _mm512_fmadd_ps(scale, sums[r][b], load_f32<kW>(from)));
    }
  }
}

template <DType kW, DType kSlot, std::size_t kRows>
BASCULE_AVX512 void multiply_add_rows(const ProductRows& product, std::size_t row) {
  std::size_t c = 0;
  for (; c + 4 * kPanelColumns <= product.columns; c += 4 * kPanelColumns)
    multiply_add_blocks<kW, kSlot, kRows, 4>(product, row, c);
  for (; c < product.columns; c += kPanelColumns) multiply_add_blocks<kW, kSlot, kRows, 1>(product, row, c);
}

template <DType kW, DType kSlot>
void multiply_add_of(const ProductRows& product) {
  std::size_t row = 0;
  for (; row + 4 <= product.rows; row += 4) multiply_add_rows<kW, kSlot, 4>(product, row);
  switch (product.rows - row) {
    case 1: return multiply_add_rows<kW, kSlot, 1>(product, row);
    case 2: return multiply_add_rows<kW, kSlot, 2>(product, row);
    case 3: return multiply_add_rows<kW, kSlot, 3>(product, row);
    default: return;
  }
}

void multiply_add(const ProductRows& product) {
  by_types(product, [&]<DType kW, DType kSlot>() { multiply_add_of<kW, kSlot>(product); });
}

}  // namespace
}  // namespace avx512

const Processor* avx512_processor() {
  if (avx2_processor() == nullptr || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bf16"))
    return nullptr;
  static const Processor processor = [] {
    Processor made = *avx2_processor();
    made.multiply_add = avx512::multiply_add;
    return made;
  }();
  return &processor;
}

}  // namespace bascule::inline v0::kernels

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#else

namespace bascule::inline v0::kernels {

const Processor* avx512_processor() { return nullptr; }

}  // namespace bascule::inline v0::kernels

#endif
