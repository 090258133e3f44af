// Arithmetic with a product, with AVX-512 and its BF16 instructions, chosen at run time. All else is avx2.cpp's.
//
// Half of a processor's vector units do multiply-adds. The digest and the rounding hide beside them as long as they use
// the other half, which has neither comparisons nor, in the digest, the multiplications.
#include <bascule/kernels/processor.h>

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
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

// Rounds to BF16 like a cast, except that the processor takes denormals for zero and keeps the payload of a NaN. If a
// lane is zero or NaN, `rare` becomes at least kRare in that lane.
constexpr short kRare = static_cast<short>(0xff00);
BASCULE_AVX512_INLINE __m512i to_bf16(__m512 low, __m512 high, __m512i& rare) {
  const __m512i made = (__m512i)_mm512_cvtne2ps_pbh(high, low);
  const __m512i without_sign = _mm512_add_epi16(made, made);  // from 0xff02 for a NaN; infinity is 0xff00
  rare = _mm512_max_epu16(rare, _mm512_add_epi16(without_sign, _mm512_set1_epi16(-1)));
  return made;
}

BASCULE_AVX512 __m512i to_exact_bf16(__m512 low, __m512 high) {
  alignas(64) std::array<float, 32> values;
  _mm512_store_ps(values.data(), low);
  _mm512_store_ps(values.data() + 16, high);
  __m512i made;
  plain_run_cast(DType::kF32, DType::kBF16)(reinterpret_cast<const std::byte*>(values.data()),
                                            reinterpret_cast<std::byte*>(&made), values.size());
  return made;
}

BASCULE_AVX512_INLINE __m256i to_f16(__m512 f32) {
  const __mmask16 nan = _mm512_cmp_ps_mask(f32, f32, _CMP_UNORD_Q);
  const __m256i halves = _mm512_cvtps_ph(f32, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_mask_mov_epi16(halves, nan, _mm256_set1_epi16(0x7fff));
}

BASCULE_AVX512_INLINE __m512i without_payload(__m512 f32) {
  const __mmask16 nan = _mm512_cmp_ps_mask(f32, f32, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(_mm512_castps_si512(f32), nan, _mm512_set1_epi32(0x7fffffff));
}

// The sums of one row's lines in one page. Eight words per step: each lane keeps its own sum, added up at the end.
struct LaneSums {
  __m512i first, second;
};

BASCULE_AVX512_INLINE __m512i add_products(__m512i sums, __m512i words, const std::uint64_t* keys) {
  const __m512i keyed = _mm512_add_epi32(words, _mm512_load_si512(keys));
  return _mm512_add_epi64(sums, _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32)));
}

// GCC's _mm512_reduce_add_epi64 adds signed numbers, and their overflow is undefined.
BASCULE_AVX512_INLINE std::uint64_t sum_of_lanes(__m512i lanes) {
  const __m256i four = _mm256_add_epi64(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(two)) + static_cast<std::uint64_t>(_mm_extract_epi64(two, 1));
}

// After the last line of a page or a row, `at` bytes after the target's first.
BASCULE_AVX512_INLINE void finish_page(const ProductRows& product, std::size_t at, LaneSums& lanes) {
  const std::size_t page = (product.target_offset + at) / kPageBytes;
  PageSums& sums = product.sums[page / kTilePages].pages[page % kTilePages];
  sums.first += sum_of_lanes(lanes.first);
  sums.second += sum_of_lanes(lanes.second);
  lanes.first = lanes.second = _mm512_setzero_si512();
}

// Stores a line `at` bytes after the target's first.
BASCULE_AVX512_INLINE void put_line(const ProductRows& product, std::size_t at, __m512i line, LaneSums& lanes) {
  std::byte* const to = product.target + at;
  if (product.sums == nullptr) return _mm512_storeu_si512(to, line);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
  const std::size_t word = (product.target_offset + at) % kPageBytes / sizeof(std::uint64_t);
  lanes.first = add_products(lanes.first, line, kDigestKeys.first() + word);
  lanes.second = add_products(lanes.second, line, kDigestKeys.second() + word);
  if (word + kLineBytes / sizeof(std::uint64_t) == kPageWords) finish_page(product, at, lanes);
}

// A line of the slot from its blocks: one of F32, or two that become 16 bits per element.
template <DType kSlot>
BASCULE_AVX512_INLINE __m512i to_line(__m512 low, __m512 high, __m512i& rare) {
  if constexpr (kSlot == DType::kF32) return without_payload(low);
  if constexpr (kSlot == DType::kBF16) return to_bf16(low, high, rare);
  if constexpr (kSlot == DType::kF16) return _mm512_inserti64x4(_mm512_castsi256_si512(to_f16(low)), to_f16(high), 1);
}

// Some blocks of some rows, starting with row `row` and column `c`. Lines are stored after w was read in all rows: a
// load waits for an earlier store whose address has the same last 12 bits, and rows are often whole pages apart.
template <DType kW, DType kSlot, std::size_t kRows, std::size_t kBlocks>
BASCULE_AVX512_INLINE void multiply_add_blocks(const ProductRows& product, std::size_t row, std::size_t c,
                                               LaneSums (&lanes)[kRows]) {
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
  constexpr std::size_t kOfLine = kLineBytes / size_of(kSlot) / kPanelColumns;  // blocks
  constexpr std::size_t kLines = (kBlocks + kOfLine - 1) / kOfLine;
  const __m512 scale = _mm512_set1_ps(product.scale);
  __m512i rare = _mm512_setzero_si512(), lines[kRows][kLines];
  const auto last_of = [](std::size_t line) { return std::min((line + 1) * kOfLine, kBlocks) - 1; };
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::byte* const w = product.w + (row + r) * product.w_stride + c * size_of(kW);
#pragma GCC unroll 4
    for (std::size_t b = 0; b < kBlocks; ++b) {
      const std::byte* const from = w + b * kPanelColumns * size_of(kW);
      _mm_prefetch(reinterpret_cast<const char*>(from + kRows * product.w_stride), _MM_HINT_T0);  // for the next rows
      sums[r][b] = _mm512_fmadd_ps(scale, sums[r][b], load_f32<kW>(from));
    }
#pragma GCC unroll 4
    for (std::size_t l = 0; l < kLines; ++l)
      lines[r][l] = to_line<kSlot>(sums[r][l * kOfLine], sums[r][last_of(l)], rare);
  }
  if constexpr (kSlot == DType::kBF16) {
    if (__builtin_expect(_mm512_cmpge_epu16_mask(rare, _mm512_set1_epi16(kRare)), 0) != 0)
#pragma GCC unroll 4
      for (std::size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (std::size_t l = 0; l < kLines; ++l) lines[r][l] = to_exact_bf16(sums[r][l * kOfLine], sums[r][last_of(l)]);
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::size_t at = (row + r) * product.target_stride + c * size_of(kSlot);
    if constexpr (kBlocks < kOfLine) {  // half a line, not of a slot
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(product.target + at), _mm512_castsi512_si256(lines[r][0]));
    } else {
#pragma GCC unroll 4
      for (std::size_t l = 0; l < kLines; ++l) put_line(product, at + l * kLineBytes, lines[r][l], lanes[r]);
    }
  }
}

template <DType kW, DType kSlot, std::size_t kRows>
BASCULE_AVX512 void multiply_add_rows(const ProductRows& product, std::size_t row) {
  LaneSums lanes[kRows];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) lanes[r].first = lanes[r].second = _mm512_setzero_si512();
  std::size_t c = 0;
  const auto fit = [&](std::size_t blocks) { return c + blocks * kPanelColumns <= product.columns; };
  for (; fit(4); c += 4 * kPanelColumns) multiply_add_blocks<kW, kSlot, kRows, 4>(product, row, c, lanes);
  for (; fit(2); c += 2 * kPanelColumns) multiply_add_blocks<kW, kSlot, kRows, 2>(product, row, c, lanes);
  for (; fit(1); c += kPanelColumns) multiply_add_blocks<kW, kSlot, kRows, 1>(product, row, c, lanes);
  if (product.sums == nullptr) return;
  const std::size_t last_line = product.columns * size_of(kSlot) - kLineBytes;
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) finish_page(product, (row + r) * product.target_stride + last_line, lanes[r]);
}

template <DType kW, DType kSlot>
void multiply_add_of(const ProductRows& product) {
  std::size_t row = 0;
  for (; row + 4 <= product.rows; row += 4) multiply_add_rows<kW, kSlot, 4>(product, row);
  for (; row < product.rows; ++row) multiply_add_rows<kW, kSlot, 1>(product, row);
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
