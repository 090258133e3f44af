#include <bascule/transport/ranges.h>

#include <algorithm>
#include <cassert>

#include <bascule/kernels/dtype.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using kernels::kTileBytes;

// Appends a range that does not begin before the last one.
void append_range(std::vector<ByteRange>& ranges, ByteRange range) {
  if (range.begin == range.end) return;
  if (ranges.empty() || range.begin > ranges.back().end) {
    ranges.push_back(range);
  } else {
    ranges.back().end = std::max(ranges.back().end, range.end);
  }
}

// A segment as runs of equal length in the slot: `outer` dimensions of such runs.
struct Runs {
  std::uint32_t outer = 0;
  std::uint64_t count = 1;
  std::uint64_t bytes = 0;  // of one run
};

Runs runs_of(const kernels::Segment& segment) {
  Runs runs{.outer = segment.rank, .bytes = size_of(segment.slot_dtype)};
  std::int64_t dense = 1;
  while (runs.outer > 0 && (segment.slot_strides[runs.outer - 1] == dense || segment.shape[runs.outer - 1] == 1))
    dense *= segment.shape[--runs.outer];
  runs.bytes *= static_cast<std::uint64_t>(dense);
  for (std::uint32_t d = 0; d < runs.outer; ++d) runs.count *= static_cast<std::uint64_t>(segment.shape[d]);
  return runs;
}

void append_runs(const kernels::Segment& segment, const Runs& runs, std::vector<ByteRange>& ranges) {
  std::array<std::int64_t, kernels::kMaxRank> index{};
  for (std::uint64_t i = 0; i < runs.count; ++i) {
    std::int64_t elements = 0;
    for (std::uint32_t d = 0; d < runs.outer; ++d) elements += index[d] * segment.slot_strides[d];
    const std::uint64_t begin =
        segment.slot_offset + static_cast<std::uint64_t>(elements) * size_of(segment.slot_dtype);
    ranges.push_back({begin, begin + runs.bytes});
    for (std::uint32_t d = runs.outer; d-- > 0 && ++index[d] == segment.shape[d];) index[d] = 0;
  }
}

}  // namespace

absl::StatusOr<std::vector<ByteRange>> ranges_of(std::span<const kernels::Segment> segments) {
  std::uint64_t count = 0;
  for (const kernels::Segment& segment : segments) {
    if (segment.elements == 0) continue;
    const std::uint64_t runs = runs_of(segment).count;
    if (runs > kMostRanges - count)
      return absl::ResourceExhaustedError(
          cat("the plan reads more than ", kMostRanges, " separate ranges; slice along outer dimensions"));
    count += runs;
  }
  std::vector<ByteRange> read;
  read.reserve(count);
  for (const kernels::Segment& segment : segments)
    if (segment.elements > 0) append_runs(segment, runs_of(segment), read);
  std::ranges::sort(read, {}, &ByteRange::begin);
  std::vector<ByteRange> ranges;
  for (const ByteRange& range : read) append_range(ranges, range);
  return ranges;
}

std::uint64_t bytes_of(std::span<const ByteRange> ranges) {
  std::uint64_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += range.end - range.begin;
  return bytes;
}

std::vector<ByteRange> whole_tiles(std::span<const ByteRange> ranges, std::uint64_t region_bytes) {
  std::vector<ByteRange> tiles;
  for (const ByteRange& range : ranges) {
    const std::uint64_t begin = kernels::tiles_of(range.begin) * kTileBytes;
    const std::uint64_t end = range.end == region_bytes ? region_bytes : range.end / kTileBytes * kTileBytes;
    if (begin < end) append_range(tiles, {begin, end});
  }
  return tiles;
}

std::vector<ByteRange> touched_tiles(std::span<const ByteRange> ranges, std::uint64_t region_bytes) {
  std::vector<ByteRange> tiles;
  for (const ByteRange& range : ranges)
    append_range(tiles, {range.begin / kTileBytes * kTileBytes,
                         std::min(kernels::tiles_of(range.end) * kTileBytes, region_bytes)});
  return tiles;
}

std::vector<ByteRange> unequal_tiles(std::span<const kernels::TileTotal> table, std::span<const ByteRange> tiles,
                                     std::span<const kernels::TileTotal> found, std::uint64_t region_bytes) {
  std::vector<ByteRange> unequal;
  for (const ByteRange& range : tiles)
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kTileBytes)
      if (table[begin / kTileBytes] != found[begin / kTileBytes])
        append_range(unequal, {begin, std::min(begin + kTileBytes, region_bytes)});
  return unequal;
}

std::vector<ByteRange> wrong_tiles(const Region& region, std::span<const kernels::TileTotal> table,
                                   std::span<const ByteRange> tiles, std::span<const std::byte> bytes,
                                   kernels::ThreadPool& pool) {
  assert(bytes.size() == region.bytes && table.size() == kernels::tiles_of(region.bytes));
  std::vector<std::uint64_t> numbers;
  for (const ByteRange& range : tiles)
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kTileBytes)
      numbers.push_back(begin / kTileBytes);
  DigestTable found(table.size());
  pool.run(numbers.size(), [&](std::size_t i) {
    const std::uint64_t begin = numbers[i] * kTileBytes;
    const auto tile = bytes.subspan(begin, std::min<std::uint64_t>(kTileBytes, bytes.size() - begin));
    found[numbers[i]] = kernels::tile_total(tile, region.first_page + numbers[i] * kernels::kTilePages);
  });
  return unequal_tiles(table, tiles, found, region.bytes);
}

}  // namespace bascule::inline v0
