// Packs whole tiles within one run to which a product is added (TilePath::kProduct). What limits it is how often the
// right factor is read: a page needs rank * 4 bytes of it for each of its columns, far more than its own bytes. So
// threads take several pages with the same columns.
//
// If a row has 6 KiB, pages 0, 3, 6, ... begin at the same column, 2 rows apart: the period is 3 pages.
//
//   a matrix   │      page 0      │   page 1 ...
//              │  ... 1  │       page 2       │
//              │      page 3      │   page 4 ...
//
// A group of 128 threads packs a quad: up to four such pages. Each thread makes the same words in all four, so it loads
// the right factor's columns once for them. The left factor's rows lie in the group's shared memory. A stretch of as
// many tiles as the period has pages, one per block, has four quads per block. All quads of a block have the same
// columns, so that its groups find the right factor in the L1 cache. Tiles at the end of a run or of a launch form a
// shorter stretch, whose quads may have fewer pages.
//
// All that a group's threads have in common also lies in shared memory: the registers are full of sums, and what they
// spill would displace the right factor in the L1 cache.
#pragma once

#include <cstdint>

#include <bascule/kernels/arithmetic_device.cuh>
#include <bascule/kernels/digest_device.cuh>

namespace bascule::inline v0::kernels::cuda {

// The greatest common divisor of a row's bytes and a page's.
__device__ inline std::uint32_t common_bytes(std::uint32_t row_bytes) {
  return min(row_bytes & -row_bytes, static_cast<std::uint32_t>(kPageBytes));
}

// Up to four pages, `period` pages apart. Steps and strides are in bytes.
struct Quad {
  std::uint64_t first_page;
  std::uint32_t period, pages;
  const std::byte *tensor, *left;         // for the first page's first word, and for its first row
  const std::byte* right;                 // the whole matrix
  std::byte* slot;                        // the first page
  std::uint64_t tensor_step, slot_step;   // from a page to the next
  std::uint32_t tensor_word, right_word;  // of the elements of a word of slot
  std::int64_t left_row, left_k, right_k;
  std::uint32_t row_words, column;       // words of a row of the matrix, and before the first page's first word
  std::uint32_t page_rows, period_rows;  // rows that a page reaches into, and from a page to the next
  std::uint32_t rows;                    // from the first page's first row to the matrix's end
  std::uint32_t rank, chunk;             // chunk: how much of the rank fits into Group::left
  float scale;
  DType tensor_dtype, slot_dtype, left_dtype, right_dtype;

  __device__ void set(const Segment& segment, const Arithmetic& arithmetic, std::byte* const* addresses, std::byte* to,
                      std::uint32_t left_rows);
};

class PackProduct {
 public:
  static constexpr std::uint32_t kGroupThreads = 128, kGroups = kThreads / kGroupThreads;

  // Of each group, in the block's shared memory.
  struct Group {
    static constexpr std::uint32_t kLeft = 512;
    float4 left[kLeft];              // [row][k]: the left factor's elements for the four pages
    std::uint64_t sums[2][4][4][2];  // [half][warp][page]: two sums
    Digest hashes[4];                // of the pages so far, by their index in the quad
    Quad quad;
  };

  __device__ PackProduct(Group* groups, const std::uint64_t* block_keys)
      : group_(groups[threadIdx.x / kGroupThreads]), keys_(block_keys) {}

  // Packs the block's part of the launched tiles, which are [first_tile, first_tile + gridDim.x).
  __device__ void run(const Segment& segment, const TableView& table, std::byte* slot, std::uint64_t first_tile,
                      const DigestOutput& target) {
    const Arithmetic& arithmetic = table.arithmetic[segment.arithmetic];
    const std::uint32_t slot_bytes = bytes_of(segment.slot_dtype);
    const std::uint64_t run_end = segment.slot_offset + segment.elements * slot_bytes;
    const std::uint64_t begin = max(first_tile, (segment.slot_offset + kTileBytes - 1) / kTileBytes);
    const std::uint64_t end = min(first_tile + gridDim.x, run_end / kTileBytes);
    const auto row_bytes = static_cast<std::uint32_t>(arithmetic.columns) * slot_bytes;
    const std::uint32_t period = row_bytes / common_bytes(row_bytes);
    const auto after = static_cast<std::uint32_t>(first_tile + blockIdx.x - begin);  // its tiles before this block's
    const std::uint32_t stretch = after / period * period;
    const std::uint32_t tiles = static_cast<std::uint32_t>(min(end - begin - stretch, std::uint64_t{period}));
    const std::uint32_t pages = tiles * kTilePages, starts = min(period, pages);
    const std::uint32_t quads = ((pages + period - 1) / period + 3) / 4;  // of one column
    if (thread() < 4) group_.hashes[thread()] = {};
#pragma unroll 1
    for (std::uint32_t i = (after - stretch) * kGroups + threadIdx.x / kGroupThreads; i < starts * quads;
         i += tiles * kGroups) {
      const std::uint32_t first = i / quads + i % quads * 4 * period;
      if (first >= pages) continue;
      wait_for_group();  // for those that still read the last quad
      if (thread() == 0) {
        group_.quad.first_page = (begin + stretch) * kTilePages + first;
        group_.quad.period = period;
        group_.quad.pages = min((pages - first + period - 1) / period, 4U);
        group_.quad.set(segment, arithmetic, table.addresses, slot, Group::kLeft);
      }
      wait_for_group();
      group_.quad.slot_dtype == DType::kF32 ? pack<2>(target.totals != nullptr) : pack<4>(target.totals != nullptr);
      if (target.totals != nullptr) add_hashes(target.bytes);
    }
    if (target.totals == nullptr) return;
    wait_for_group();
    Digest hashes;
    if (thread() == 0)
      for (const Digest& hash : group_.hashes) hashes.low += hash.low, hashes.high += hash.high;
    give_hashes(hashes, 0, 1, target);  // of no single tile: PackPlan::begin() asks for no totals
  }

 private:
  static __device__ std::uint32_t thread() { return threadIdx.x % kGroupThreads; }
  static __device__ std::uint32_t warp() { return thread() / 32; }
  static __device__ void wait_for_group() {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / kGroupThreads) : "memory");
  }
  static __device__ void forget_registers() { asm volatile("" ::: "memory"); }

  // A thread makes two words of each page in each half of it. They lie 32 words apart, so that a warp's loads and
  // stores are adjacent.
  static __device__ std::uint32_t word(std::uint32_t half, std::uint32_t i) {
    return (half * 4 + warp()) * kStepWords + threadIdx.x % 32 + i * 32;
  }

  template <int kCount>  // elements of a word
  __device__ void pack(bool hash) {
    prefetch();
#pragma unroll 1
    for (std::uint32_t half = 0; half < 2; ++half) {
      float totals[2][4][kCount] = {};
#pragma unroll 1
      for (std::uint32_t k = 0; k < group_.quad.rank; k += group_.quad.chunk) {
        if (half == 0 || group_.quad.chunk < group_.quad.rank) load_left(k);
        multiply(half, k, totals);
      }
      forget_registers();
      finish(half, totals, hash);
    }
  }

  // Brings the quad's part of the tensor into the L2 cache, while the product is computed.
  __device__ void prefetch() const {
    const Quad& quad = group_.quad;
    const std::uint32_t lines = kPageWords * quad.tensor_word / 128;
    for (std::uint32_t i = thread(); i < quad.pages * lines; i += kGroupThreads)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(quad.tensor + i / lines * quad.tensor_step + i % lines * 128));
  }

  // Elements [k, k + chunk) of the rows of all pages.
  __device__ void load_left(std::uint32_t k) {
    const Quad& quad = group_.quad;
    wait_for_group();  // for readers of what is there now
    const std::uint32_t size = min(quad.chunk, quad.rank - k);
    for (std::uint32_t i = thread(); i < 4 * quad.page_rows * size; i += kGroupThreads) {
      const std::uint32_t page = i % 4, row = i / 4 / size, column = i / 4 % size;
      const std::uint32_t its_row = page * quad.period_rows + row;
      float value = 0;
      if (page < quad.pages && its_row < quad.rows)  // the last page may end within a row
        value = f32_of(quad.left_dtype, quad.left + its_row * quad.left_row + (k + column) * quad.left_k);
      reinterpret_cast<float*>(group_.left)[i] = value;
    }
    wait_for_group();
  }

  template <int kCount>
  __device__ void multiply(std::uint32_t half, std::uint32_t k, float (&totals)[2][4][kCount]) {
    const Quad& quad = group_.quad;
    const std::byte* const right = quad.right + k * quad.right_k;
    const std::uint64_t like = reinterpret_cast<std::uintptr_t>(right) | static_cast<std::uint64_t>(quad.right_k);
    by_type<Reads::kAgain, kCount>(quad.right_dtype, quad.right_word, like,
                                   [&](auto load) { multiply_with<kCount>(half, k, right, totals, load); });
  }

  template <int kCount, typename Load>
  __device__ void multiply_with(std::uint32_t half, std::uint32_t k, const std::byte* right,
                                float (&totals)[2][4][kCount], Load load) {
    const Quad& quad = group_.quad;
    std::uint32_t left_k = min(quad.chunk, quad.rank - k);
    const std::uint32_t first = quad.column + word(half, 0), second = quad.column + word(half, 1);
    const std::uint32_t first_row = first / quad.row_words, second_row = second / quad.row_words;
    const std::byte* from = right + std::uint64_t{first - first_row * quad.row_words} * quad.right_word;
    const std::byte* const from_second = right + std::uint64_t{second - second_row * quad.row_words} * quad.right_word;
    const std::int64_t apart = from_second - from;
    const float4* left = group_.left + first_row * left_k;
    const std::uint32_t left_apart = (second_row - first_row) * left_k;
    const std::int64_t step = quad.right_k;
#pragma unroll 4
    for (; left_k > 0; --left_k, from += step, ++left) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float factors[kCount];
        load(i == 0 ? from : from + apart, factors);
        const float4 of_pages = i == 0 ? *left : left[left_apart];
        const float pages[4] = {of_pages.x, of_pages.y, of_pages.z, of_pages.w};
#pragma unroll
        for (int page = 0; page < 4; ++page)
#pragma unroll
          for (int e = 0; e < kCount; ++e) totals[i][page][e] = fmaf(pages[page], factors[e], totals[i][page][e]);
      }
    }
  }

  // Adds the tensor's elements, rounds, stores, and adds up the warp's part of the pages' sums.
  template <int kCount>
  __device__ void finish(std::uint32_t half, const float (&totals)[2][4][kCount], bool hash) {
    const Quad& quad = group_.quad;
    uint2 packed[2][4];
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t index = word(half, i);
      float w[4][kCount];
      load_tensor<kCount>(index, w);
      forget_registers();
      const float scale = quad.scale;
      const DType dtype = quad.slot_dtype;
      const std::uint32_t pages = quad.pages;
      const std::uint64_t slot_step = quad.slot_step;
      std::byte* to = quad.slot + index * 8;
#pragma unroll
      for (std::uint32_t page = 0; page < 4; ++page, to += slot_step) {
        packed[i][page] = rounded<kCount>(dtype, scale, totals[i][page], w[page]);
        if (page < pages) __stcs(reinterpret_cast<uint2*>(to), packed[i][page]);
      }
    }
    if (hash) add_sums(half, packed);
  }

  __device__ void add_sums(std::uint32_t half, const uint2 (&packed)[2][4]) {
    std::uint64_t sums[8] = {};
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      const uint2 first = *reinterpret_cast<const uint2*>(keys_ + word(half, i));
      const uint2 second = *reinterpret_cast<const uint2*>(keys_ + word(half, i) + kKeyShift);
#pragma unroll
      for (std::uint32_t page = 0; page < 4; ++page) {
        const uint2 words = packed[i][page];
        sums[2 * page] += static_cast<std::uint64_t>(words.x + first.x) * (words.y + first.y);
        sums[2 * page + 1] += static_cast<std::uint64_t>(words.x + second.x) * (words.y + second.y);
      }
    }
    // Lane 4 * (2 * page + i) has sum i of that page.
    const std::uint64_t sum = sum_of_lanes(sums);
    if (threadIdx.x % 4 == 0) group_.sums[half][warp()][threadIdx.x % 32 / 8][threadIdx.x / 4 % 2] = sum;
  }

  // Loads the tensor's elements for one word of each page, all loads in flight together. For a page that is not there
  // it loads the last page's elements again.
  template <int kCount>
  __device__ void load_tensor(std::uint32_t index, float (&w)[4][kCount]) const {
    const Quad& quad = group_.quad;
    const std::uint32_t last = quad.pages - 1;
    const std::byte* const from = quad.tensor + index * quad.tensor_word;
    const std::uint64_t step = quad.tensor_step;
    by_type<Reads::kOnce, kCount>(quad.tensor_dtype, quad.tensor_word, reinterpret_cast<std::uintptr_t>(from),
                                  [&](auto load) {
#pragma unroll
                                    for (std::uint32_t page = 0; page < 4; ++page)
                                      load(from + min(page, last) * step, w[page]);
                                  });
  }

  template <int kCount>
  static __device__ uint2 rounded(DType dtype, float scale, const float (&totals)[kCount], const float (&w)[kCount]) {
    std::uint32_t bits[kCount];
#pragma unroll
    for (int e = 0; e < kCount; ++e) bits[e] = __float_as_uint(fmaf(scale, totals[e], w[e]));
    if constexpr (kCount == 2) {
      return {no_payload(bits[0]), no_payload(bits[1])};
    } else {
      if (dtype == DType::kBF16) return {two_bf16(bits[0], bits[1]), two_bf16(bits[2], bits[3])};
      return {two_f16(bits[0], bits[1]), two_f16(bits[2], bits[3])};
    }
  }

  __device__ void add_hashes(std::uint64_t bytes) {
    wait_for_group();
    const std::uint64_t page = group_.quad.first_page + std::uint64_t{group_.quad.period} * thread();
    if (thread() >= group_.quad.pages || page * kPageBytes >= bytes) return;
    std::uint64_t first = 0, second = 0;
    for (const auto& half : group_.sums)
      for (const auto& of_warp : half) first += of_warp[thread()][0], second += of_warp[thread()][1];
    const Digest hash = mix128(first, second, page);
    group_.hashes[thread()].low += hash.low, group_.hashes[thread()].high += hash.high;
  }

  Group& group_;
  const std::uint64_t* keys_;
};

__device__ inline void Quad::set(const Segment& segment, const Arithmetic& arithmetic, std::byte* const* addresses,
                                 std::byte* to, std::uint32_t left_rows) {
  const Factor &l = arithmetic.left, &r = arithmetic.right;
  const std::uint32_t slot_bytes = bytes_of(segment.slot_dtype), tensor_bytes = bytes_of(segment.tensor_dtype);
  const std::uint32_t elements_per_word = slot_bytes == 4 ? 2 : 4;
  tensor_word = elements_per_word * tensor_bytes;
  right_word = elements_per_word * bytes_of(r.dtype);
  constexpr auto kWords = static_cast<std::uint32_t>(kPageWords);
  row_words = static_cast<std::uint32_t>(arithmetic.columns) / elements_per_word;
  // A run of TilePath::kProduct has fewer than 2^32 words.
  const auto before = static_cast<std::uint32_t>((first_page * kPageBytes - segment.slot_offset) / 8);
  const std::uint32_t row = before / row_words;
  column = before - row * row_words;
  page_rows = (column + kWords - 1) / row_words + 1;
  period_rows = static_cast<std::uint32_t>(kPageBytes) / common_bytes(row_words * 8);
  rows = static_cast<std::uint32_t>(segment.elements / elements_per_word) / row_words - row;
  rank = arithmetic.rank;
  chunk = min(rank, left_rows / page_rows);  // at least 1, since a row has at least two words
  scale = arithmetic.scale;
  tensor_dtype = segment.tensor_dtype, slot_dtype = segment.slot_dtype, left_dtype = l.dtype, right_dtype = r.dtype;
  slot_step = std::uint64_t{period} * kPageBytes;
  tensor_step = std::uint64_t{period} * kWords * tensor_word;
  slot = to + first_page * kPageBytes;
  tensor = addresses[segment.tensor] + segment.tensor_offset + std::uint64_t{before} * tensor_word;
  const auto left_bytes = static_cast<std::int64_t>(bytes_of(l.dtype));
  left_row = l.row_stride * left_bytes, left_k = l.column_stride * left_bytes;
  left = addresses[l.tensor] + row * left_row;
  right_k = r.row_stride * static_cast<std::int64_t>(bytes_of(r.dtype));
  right = addresses[r.tensor];
}

}  // namespace bascule::inline v0::kernels::cuda
