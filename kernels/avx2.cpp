// The processor operations with AVX2, F16C and FMA, chosen at run time.
#include <bascule/kernels/processor.h>

#if defined(__x86_64__)

#include <cpuid.h>

#include <algorithm>
#include <array>

#include <bascule/kernels/avx2_load.h>
#include <bascule/kernels/cast_run.h>
#include <bascule/kernels/default_rounding.h>

namespace bascule::inline v0::kernels {
namespace avx2 {
namespace {

// Four words per step: each lane of 64 bits keeps its own sum, added up at the end.
BASCULE_AVX2_INLINE __m256i add_products(__m256i sums, __m256i words, __m256i keys) {
  const __m256i keyed = _mm256_add_epi32(words, keys);
  return _mm256_add_epi64(sums, _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32)));
}

BASCULE_AVX2_INLINE __m256i load_keys(const std::uint64_t* keys) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(keys));
}

BASCULE_AVX2_INLINE std::uint64_t sum_of_lanes(__m256i lanes) {
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  return static_cast<std::uint64_t>(_mm_extract_epi64(two, 0)) + static_cast<std::uint64_t>(_mm_extract_epi64(two, 1));
}

// Walks lines [begin, end) of a page in address order, and prefetches a long source half a page ahead. Without this the
// memory latency would show, because the products fill the instruction window that would otherwise hide it.
template <bool kWantSums, bool kStore, bool kAskAhead, typename Load>
BASCULE_AVX2_INLINE PageSums walk_lines(Load load, const std::byte* source, std::byte* page, std::size_t begin,
                                        std::size_t end) {
  constexpr std::size_t kVector = 32;
  constexpr std::size_t kAhead = kAskAhead ? 2048 : 0;  // bytes of source; past its end the hint does nothing
  __m256i first_sums = _mm256_setzero_si256();
  __m256i second_sums = _mm256_setzero_si256();
  for (std::size_t line = begin; line < end; line += kLineBytes) {
    for (std::size_t ahead = 0; ahead < 2 * Load::kSourceBytes; ahead += kLineBytes)
      _mm_prefetch(reinterpret_cast<const char*>(source) + kAhead + ahead, _MM_HINT_T0);
    for (std::size_t vector = line; vector < line + kLineBytes; vector += kVector) {
      const __m256i words = load.at(source);
      source += Load::kSourceBytes;
      if constexpr (kStore) _mm256_stream_si256(reinterpret_cast<__m256i*>(page + vector), words);
      if constexpr (kWantSums) {
        const std::size_t word = vector / sizeof(std::uint64_t);
        first_sums = add_products(first_sums, words, load_keys(kDigestKeys.first() + word));
        second_sums = add_products(second_sums, words, load_keys(kDigestKeys.second() + word));
      }
    }
  }
  if constexpr (!kWantSums) return {};
  return {sum_of_lanes(first_sums), sum_of_lanes(second_sums)};
}

BASCULE_AVX2 PageSums page_sums(const std::byte* page) {
  return walk_lines<true, false, true>(Load<DType::kU8, DType::kU8>{}, page, nullptr, 0, kPageBytes);
}

template <bool kWantSums, typename Load>
BASCULE_AVX2 void walk_pages(Load load, const std::byte* source, std::byte* tile, std::size_t begin, std::size_t end,
                             TileSums* sums) {
  constexpr std::size_t kPageSourceBytes = kPageBytes / 32 * Load::kSourceBytes;
  const bool whole = end - begin == kTileBytes;
  for (std::size_t page = begin / kPageBytes; page * kPageBytes < end; ++page) {
    std::byte* const to = tile + page * kPageBytes;
    PageSums more;
    if (whole) {
      more = walk_lines<kWantSums, true, true>(load, source, to, 0, kPageBytes);
      source += kPageSourceBytes;
    } else {
      const std::size_t first = std::max(begin, page * kPageBytes) - page * kPageBytes;
      const std::size_t last = std::min(end - page * kPageBytes, kPageBytes);
      more = walk_lines<kWantSums, true, false>(load, source, to, first, last);
      source += (last - first) / 32 * Load::kSourceBytes;
    }
    if constexpr (kWantSums) {
      sums->pages[page].first += more.first;
      sums->pages[page].second += more.second;
    }
  }
}

template <DType kFrom, DType kTo>
void write_tile(const std::byte* source, std::byte* tile, std::size_t begin, std::size_t end, TileSums* sums) {
  constexpr Load<kFrom, kTo> kLoad{};
  return sums != nullptr ? walk_pages<true>(kLoad, source, tile, begin, end, sums)
                         : walk_pages<false>(kLoad, source, tile, begin, end, nullptr);
}

template <DType kFrom, DType kTo>
void write_scaled(const std::byte* source, float scale, std::byte* tile, std::size_t begin, std::size_t end,
                  TileSums* sums) {
  const DefaultRounding rounding;
  TileSums unused;
  walk_pages<true>(ScaledLoad<kFrom, kTo>{scale}, source, tile, begin, end, sums != nullptr ? sums : &unused);
}

template <DType kFrom, DType kTo>
BASCULE_AVX2 void cast_run(const std::byte* source, std::byte* target, std::size_t elements) {
  using Vector = Load<kFrom, kTo>;
  std::size_t i = 0;
  for (; i + Vector::kElements <= elements; i += Vector::kElements)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i * size_of(kTo)), Vector::at(source + i * size_of(kFrom)));
  plain_run_cast(kFrom, kTo)(source + i * size_of(kFrom), target + i * size_of(kTo), elements - i);
}

template <DType kRight>
BASCULE_AVX2 void make_panel(const std::byte* right, std::size_t stride, std::size_t rank, std::size_t columns,
                             float* panel) {
  constexpr std::size_t kLanes = 8;
  for (std::size_t k = 0; k < rank; ++k) {
    const std::byte* from = right + k * stride;
    float* to = panel + k * kPanelColumns;
    for (std::size_t c = 0; c < columns; c += kPanelColumns, to += kPanelColumns * rank) {
      for (std::size_t half = 0; half < 2; ++half, from += kLanes * size_of(kRight))
        _mm256_storeu_ps(to + half * kLanes, _mm256_castsi256_ps(load_as_f32<kRight>(from)));
    }
  }
}

MakePanel make_panel_of(DType right) {
  switch (right) {
    case DType::kBF16: return make_panel<DType::kBF16>;
    case DType::kF16: return make_panel<DType::kF16>;
    default: return make_panel<DType::kF32>;
  }
}

template <DType kW>
BASCULE_AVX2_INLINE __m256i add_product(const std::byte* w, __m256 scale, __m256 sum) {
  return _mm256_castps_si256(_mm256_fmadd_ps(scale, sum, _mm256_castsi256_ps(load_as_f32<kW>(w))));
}

// A load of the panel serves all rows, and the additions of one accumulator are far enough apart to overlap: twelve
// accumulators, two vectors of the panel and one factor are nearly all registers.
template <DType kW, DType kSlot, std::size_t kRows>
BASCULE_AVX2 void multiply_add_rows(const ProductRows& product, std::size_t row) {
  constexpr std::size_t kLanes = 8;
  const std::size_t rank = product.rank;
  const float* const left = product.left + row * rank;
  const float* panel = product.panel;
  const __m256 scale = _mm256_set1_ps(product.scale);
  for (std::size_t c = 0; c < product.columns; c += kPanelColumns) {
    __m256 sums[kRows][2] = {};
    for (std::size_t k = 0; k < rank; ++k, panel += kPanelColumns) {
      const __m256 first = _mm256_loadu_ps(panel);
      const __m256 second = _mm256_loadu_ps(panel + kLanes);
#pragma GCC unroll 6
      for (std::size_t r = 0; r < kRows; ++r) {
        const __m256 factor = _mm256_broadcast_ss(left + r * rank + k);
        sums[r][0] = _mm256_fmadd_ps(factor, first, sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(factor, second, sums[r][1]);
      }
    }
#pragma GCC unroll 6
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::byte* const w = product.w + (row + r) * product.w_stride + c * size_of(kW);
      std::byte* const to = product.target + (row + r) * product.target_stride + c * size_of(kSlot);
      _mm_prefetch(reinterpret_cast<const char*>(w + kRows * product.w_stride), _MM_HINT_T0);  // for the next rows
      const __m256i low = add_product<kW>(w, scale, sums[r][0]);
      const __m256i high = add_product<kW>(w + kLanes * size_of(kW), scale, sums[r][1]);
      if constexpr (kSlot == DType::kF32) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), without_payload(low));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kLanes * size_of(kSlot)), without_payload(high));
      } else {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow<kSlot>(low, high));
      }
    }
  }
}

template <DType kW, DType kSlot>
void multiply_add_of(const ProductRows& product) {
  std::size_t row = 0;
  for (; row + 6 <= product.rows; row += 6) multiply_add_rows<kW, kSlot, 6>(product, row);
  switch (product.rows - row) {
    case 1: return multiply_add_rows<kW, kSlot, 1>(product, row);
    case 2: return multiply_add_rows<kW, kSlot, 2>(product, row);
    case 3: return multiply_add_rows<kW, kSlot, 3>(product, row);
    case 4: return multiply_add_rows<kW, kSlot, 4>(product, row);
    case 5: return multiply_add_rows<kW, kSlot, 5>(product, row);
    default: return;
  }
}

void multiply_add_in_cache(const ProductRows& product) {
  by_types(product, [&]<DType kW, DType kSlot>() { multiply_add_of<kW, kSlot>(product); });
}

// Writes lines to a slot, `at` bytes after the first tile, whose address is `tiles`.
void put_lines(const std::byte* from, std::byte* tiles, std::uint64_t at, std::size_t bytes, TileSums* sums) {
  while (bytes > 0) {
    const std::uint64_t tile = at / kTileBytes, begin = at % kTileBytes;
    const std::size_t some = std::min(bytes, kTileBytes - begin);
    write_tile<DType::kU8, DType::kU8>(from, tiles + tile * kTileBytes, begin, begin + some, sums + tile);
    at += some, from += some, bytes -= some;
  }
}

// The accumulators leave no registers for the digest, so rows for a slot are made in the cache first.
void multiply_add(const ProductRows& product) {
  if (product.sums == nullptr) return multiply_add_in_cache(product);
  constexpr std::size_t kMostRows = 6, kRowBytes = (kMostColumns + 32) * sizeof(float);  // not 4 KiB
  alignas(64) std::array<std::byte, kMostRows * kRowBytes> made;
  ProductRows some = product;
  some.target = made.data();
  some.target_stride = kRowBytes;
  some.sums = nullptr;
  for (std::size_t row = 0; row < product.rows; row += some.rows) {
    some.rows = std::min(kMostRows, product.rows - row);
    some.left = product.left + row * product.rank;
    some.w = product.w + row * product.w_stride;
    multiply_add_in_cache(some);
    for (std::size_t r = 0; r < some.rows; ++r)
      put_lines(made.data() + r * kRowBytes, product.target - product.target_offset,
                product.target_offset + (row + r) * product.target_stride,
                product.columns * size_of(product.slot_dtype), product.sums);
  }
}

struct Pair {
  DType from;
  DType to;
  RunCast run_cast;
  TileWriter tile_writer;
};

template <DType kFrom, DType kTo>
constexpr Pair pair() {
  return {kFrom, kTo, cast_run<kFrom, kTo>, write_tile<kFrom, kTo>};
}

constexpr Pair kPairs[] = {
    pair<DType::kF32, DType::kBF16>(), pair<DType::kF32, DType::kF16>(),  pair<DType::kBF16, DType::kF32>(),
    pair<DType::kF16, DType::kF32>(),  pair<DType::kBF16, DType::kF16>(), pair<DType::kF16, DType::kBF16>(),
};

const Pair* pair_of(DType from, DType to) {
  for (const Pair& pair : kPairs)
    if (pair.from == from && pair.to == to) return &pair;
  return nullptr;
}

RunCast run_cast(DType from, DType to) {
  const Pair* pair = pair_of(from, to);
  return pair != nullptr ? pair->run_cast : plain_run_cast(from, to);
}

TileWriter tile_writer(DType from, DType to) {
  if (from == to) return write_tile<DType::kU8, DType::kU8>;
  const Pair* pair = pair_of(from, to);
  return pair != nullptr ? pair->tile_writer : nullptr;
}

template <DType kTo>
ScaledWriter scaled_writer_from(DType from) {
  switch (from) {
    case DType::kF32: return write_scaled<DType::kF32, kTo>;
    case DType::kBF16: return write_scaled<DType::kBF16, kTo>;
    case DType::kF16: return write_scaled<DType::kF16, kTo>;
    default: return nullptr;
  }
}

ScaledWriter scaled_writer(DType from, DType to) {
  switch (to) {
    case DType::kF32: return scaled_writer_from<DType::kF32>(from);
    case DType::kBF16: return scaled_writer_from<DType::kBF16>(from);
    case DType::kF16: return scaled_writer_from<DType::kF16>(from);
    default: return nullptr;
  }
}

}  // namespace
}  // namespace avx2

namespace {

// Asks the processor for F16C: clang 14's __builtin_cpu_supports does not know the name. The operating system saves
// F16C's state, and FMA's, with AVX2's.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

const Processor* avx2_processor() {
  static constexpr Processor kAvx2 = {
      .run_cast = avx2::run_cast,
      .page_sums = avx2::page_sums,
      .tile_writer = avx2::tile_writer,
      .scaled_writer = avx2::scaled_writer,
      .make_panel = avx2::make_panel_of,
      .multiply_add = avx2::multiply_add,
      .flush = [] { _mm_sfence(); },
  };
  static const bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  return supported ? &kAvx2 : nullptr;
}

}  // namespace bascule::inline v0::kernels

#else

namespace bascule::inline v0::kernels {

const Processor* avx2_processor() { return nullptr; }

}  // namespace bascule::inline v0::kernels

#endif
