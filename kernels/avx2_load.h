// Casts with AVX2 and F16C vectors, 32 bytes of slot at a time; the results equal kernels/cast.h bit for bit.
//
// Only functions marked BASCULE_AVX2 use these instructions, so that one binary runs on every x86-64.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include <bascule/kernels/dtype.h>

#define BASCULE_AVX2 __attribute__((target("avx2,f16c,fma")))
#define BASCULE_AVX2_INLINE __attribute__((target("avx2,f16c,fma"), always_inline)) inline

namespace bascule::inline v0::kernels::avx2 {

// Loads eight source elements, widened to the bits of F32. A NaN keeps its payload here, and is replaced by the code
// that narrows or stores it.
template <DType kFrom>
BASCULE_AVX2_INLINE __m256i load_as_f32(const std::byte* source) {
  if constexpr (kFrom == DType::kF32) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    if constexpr (kFrom == DType::kBF16) return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
    if constexpr (kFrom == DType::kF16) return _mm256_castps_si256(_mm256_cvtph_ps(halves));
  }
}

BASCULE_AVX2_INLINE __m256i nan_lanes(__m256i f32) {
  const __m256 values = _mm256_castsi256_ps(f32);
  return _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
}

// The upper 16 bits of each lane, after rounding to nearest even; a NaN becomes 0x7FFF.
BASCULE_AVX2_INLINE __m256i round_to_bf16(__m256i f32) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(f32, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(f32, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i result = _mm256_srli_epi32(rounded, 16);
  return _mm256_blendv_epi8(result, _mm256_set1_epi32(0x7fff), nan_lanes(f32));
}

// F32 for the slot, which has one NaN.
BASCULE_AVX2_INLINE __m256i without_payload(__m256i f32) {
  return _mm256_blendv_epi8(f32, _mm256_set1_epi32(0x7fffffff), nan_lanes(f32));
}

// Sixteen elements of BF16 or F16 from F32.
template <DType kTo>
BASCULE_AVX2_INLINE __m256i narrow(__m256i low, __m256i high) {
  if constexpr (kTo == DType::kBF16) {
    // Packing works within halves of 128 bits; the permutation puts the quarters back in order.
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round_to_bf16(low), round_to_bf16(high)), 0xd8);
  } else {
    static_assert(kTo == DType::kF16);
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m256i halves = _mm256_set_m128i(_mm256_cvtps_ph(_mm256_castsi256_ps(high), kNearestEven),
                                            _mm256_cvtps_ph(_mm256_castsi256_ps(low), kNearestEven));
    const __m256i nan = _mm256_permute4x64_epi64(_mm256_packs_epi32(nan_lanes(low), nan_lanes(high)), 0xd8);
    return _mm256_blendv_epi8(halves, _mm256_set1_epi16(0x7fff), nan);
  }
}

// Makes 32 bytes of slot from the elements at `source`.
template <DType kFrom, DType kTo>
struct Load {
  static constexpr std::size_t kElements = 32 / size_of(kTo);
  static constexpr std::size_t kSourceBytes = kElements * size_of(kFrom);

  BASCULE_AVX2_INLINE static __m256i at(const std::byte* source) {
    if constexpr (kFrom == kTo) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    } else if constexpr (kTo == DType::kF32) {
      return without_payload(load_as_f32<kFrom>(source));
    } else {
      return narrow<kTo>(load_as_f32<kFrom>(source), load_as_f32<kFrom>(source + kSourceBytes / 2));
    }
  }
};

// Multiplies the elements by `scale` in F32 before they are rounded.
template <DType kFrom, DType kTo>
struct ScaledLoad {
  static constexpr std::size_t kSourceBytes = 32 / size_of(kTo) * size_of(kFrom);
  float scale;

  BASCULE_AVX2_INLINE __m256i at(const std::byte* source) const {
    if constexpr (kTo == DType::kF32) {
      return without_payload(scaled(source));
    } else {
      return narrow<kTo>(scaled(source), scaled(source + kSourceBytes / 2));
    }
  }

 private:
  BASCULE_AVX2_INLINE __m256i scaled(const std::byte* source) const {
    return _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(load_as_f32<kFrom>(source)), _mm256_set1_ps(scale)));
  }
};

}  // namespace bascule::inline v0::kernels::avx2
