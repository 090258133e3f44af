#include <bascule/transport/cut.h>

#include <algorithm>
#include <limits>

#include <bascule/transport/shards.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::size_t kMostDimensions = 64;  // of a cut from a peer

std::int64_t piece_size(std::int64_t extent, std::int64_t pieces) {
  return extent / pieces + (extent % pieces != 0 ? 1 : 0);
}

// Into how many pieces a dimension of `extent` elements is divided if boxes begin and end there.
std::int64_t pieces_of(std::int64_t extent, std::span<const std::int64_t> borders) {
  std::int64_t size = extent;  // of the first piece
  for (const std::int64_t border : borders)
    if (border > 0) size = std::min(size, border);
  if (size == extent) return 1;
  const std::int64_t pieces = piece_size(extent, size);
  const bool follows = piece_size(extent, pieces) == size && std::ranges::all_of(borders, [&](std::int64_t border) {
                         return border % size == 0 || border == extent;
                       });
  return follows ? pieces : extent;
}

}  // namespace

Cut Cut::of(const TensorSpec& spec, std::vector<CutBox> boxes) {
  std::ranges::sort(boxes, {}, &CutBox::offset);
  Cut cut;
  std::vector<std::int64_t> sizes;
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    std::vector<std::int64_t> borders;
    for (const CutBox& box : boxes) {
      borders.push_back(box.offset[d]);
      borders.push_back(box.offset[d] + box.shape[d]);
    }
    cut.pieces.push_back(pieces_of(spec.shape[d], borders));
    sizes.push_back(std::max<std::int64_t>(piece_size(spec.shape[d], cut.pieces[d]), 1));
  }
  for (const CutBox& box : boxes) {
    cut.regions.push_back(box.region);
    for (std::size_t d = 0; d < cut.pieces.size(); ++d) {
      if (cut.pieces[d] == 1) continue;
      cut.bounds.push_back(box.offset[d] / sizes[d]);
      cut.bounds.push_back(piece_size(box.offset[d] + box.shape[d], sizes[d]));
    }
  }
  while (!cut.pieces.empty() && cut.pieces.back() == 1) cut.pieces.pop_back();
  return cut;
}

absl::Status Cut::check(std::size_t in_regions) const {
  if (pieces.size() > kMostDimensions || std::ranges::any_of(pieces, [](std::int64_t count) { return count < 1; }))
    return invalid_argument("a cut has ", pieces.size(), " dimensions, or one of no pieces; expected at most ",
                            kMostDimensions, " dimensions, each of a piece or more");
  if (const auto region = std::ranges::find_if(regions, [&](std::uint32_t r) { return r >= in_regions; });
      region != regions.end())
    return invalid_argument("a cut names region ", *region, ", of ", in_regions);
  const auto cut_dimensions =
      static_cast<std::size_t>(std::ranges::count_if(pieces, [](std::int64_t count) { return count > 1; }));
  if (regions.size() > kMostBoxesOfTensor || bounds.size() != 2 * cut_dimensions * regions.size())
    return invalid_argument("a cut of ", regions.size(), " boxes in ", cut_dimensions, " dimensions has ",
                            bounds.size(), " bounds, expected two per box and dimension, and ", kMostBoxesOfTensor,
                            " boxes at most");
  // The pieces themselves, as a tensor of bytes whose boxes are all on one rank.
  TensorSpec spec{.name = "of a cut's pieces", .dtype = DType::kU8, .shape = pieces};
  std::vector<std::int64_t> numbers;  // offset and shape of each box
  const std::size_t width = 2 * pieces.size();
  numbers.reserve(width * regions.size());
  auto bound = bounds.begin();
  for (std::size_t i = 0; i < regions.size(); ++i) {
    std::vector<std::int64_t> shape = pieces, offset(pieces.size(), 0);
    for (std::size_t d = 0; d < pieces.size(); ++d) {
      if (pieces[d] == 1) continue;
      const std::int64_t begin = *bound++, end = *bound++;
      if (begin < 0 || begin >= end || end > pieces[d])
        return invalid_argument("a cut has a box from piece ", begin, " to ", end, " of ", pieces[d]);
      offset[d] = begin;
      shape[d] = end - begin;
    }
    numbers.insert(numbers.end(), offset.begin(), offset.end());
    numbers.insert(numbers.end(), shape.begin(), shape.end());
  }
  std::vector<std::vector<ShardBox>> boxes(1);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const std::span<const std::int64_t> box = std::span(numbers).subspan(i * width, width);
    boxes[0].push_back({.tensor = 0, .offset = box.first(pieces.size()), .shape = box.subspan(pieces.size())});
  }
  return annotate(plan_shards({&spec, 1}, boxes).status(), "a cut");
}

absl::Status Cut::check_fits(const TensorSpec& spec) const {
  const bool fits = pieces.size() <= spec.shape.size() &&
                    std::ranges::equal(pieces, std::span(spec.shape).first(std::min(pieces.size(), spec.shape.size())),
                                       [](std::int64_t count, std::int64_t extent) {
                                         return count <= std::max<std::int64_t>(extent, 1);
                                       });
  if (fits) return absl::OkStatus();
  return invalid_argument("tensor ", to_string(spec), " is cut into more pieces than it has elements");
}

std::vector<CutBox> Cut::boxes(std::span<const std::int64_t> shape) const {
  std::vector<CutBox> made;
  made.reserve(regions.size());
  auto bound = bounds.begin();
  for (const std::uint32_t region : regions) {
    CutBox box{
        .region = region, .offset = std::vector<std::int64_t>(shape.size(), 0), .shape = {shape.begin(), shape.end()}};
    for (std::size_t d = 0; d < pieces.size(); ++d) {
      if (pieces[d] == 1) continue;
      const std::int64_t size = piece_size(shape[d], pieces[d]);
      const std::int64_t begin = std::min(*bound++ * size, shape[d]), end = std::min(*bound++ * size, shape[d]);
      box.offset[d] = begin;
      box.shape[d] = end - begin;
    }
    made.push_back(std::move(box));
  }
  return made;
}

}  // namespace bascule::inline v0
