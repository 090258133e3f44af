// A layout whose tensors lie in several regions.
#include <algorithm>
#include <tuple>

#include <bascule/kernels/digest_function.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/placing_rank.h>
#include <bascule/transport/regions.h>
#include <bascule/transport/shards.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::uint64_t kMostGranule = std::uint64_t{1} << 40;

absl::Status check_division(const Division& division, std::span<const Placement> tensors) {
  if (division.regions == 0 || division.regions > kMostRegions)
    return invalid_argument("expected 1 to ", kMostRegions, " regions, found ", division.regions);
  if (division.granule == 0 || division.granule > kMostGranule || division.granule % kernels::kPageBytes != 0)
    return invalid_argument("regions begin at multiples of ", division.granule, " bytes, expected whole pages of ",
                            kernels::kPageBytes, " bytes");
  if (division.cut_of.size() != tensors.size())
    return invalid_argument("expected a cut for each of ", tensors.size(), " tensors, found ", division.cut_of.size());
  std::size_t boxes = 0;  // of all cuts, then of all tensors
  for (const Cut& cut : division.cuts) {
    boxes += cut.regions.size();
    if (boxes > kMostBoxes) break;
    BASCULE_TRY(cut.check(division.regions));
  }
  if (boxes > kMostBoxes) return invalid_argument("expected at most ", kMostBoxes, " boxes in all cuts, found more");
  boxes = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (division.cut_of[t] >= division.cuts.size())
      return invalid_argument("tensor ", to_string(tensors[t].spec), " has cut number ", division.cut_of[t], ", of ",
                              division.cuts.size());
    const Cut& cut = division.cuts[division.cut_of[t]];
    BASCULE_TRY(cut.check_fits(tensors[t].spec));
    boxes += cut.regions.size();
    if (boxes > kMostBoxes) return invalid_argument("expected at most ", kMostBoxes, " boxes, found more");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Layout::place_boxes() {
  BASCULE_TRY(check_division(*division_, tensors_));
  struct Box {
    std::uint32_t region;
    std::size_t rank, number;
    std::uint64_t bytes;
  };
  std::vector<Box> boxes;
  for (const Placement& tensor : tensors_) {
    first_box_.push_back(boxes.size());
    const Cut& cut = division_->cuts[division_->cut_of[first_box_.size() - 1]];
    for (const CutBox& box : cut.boxes(tensor.spec.shape)) {
      const std::uint64_t bytes = byte_count(tensor.spec.dtype, box.shape);
      boxes.push_back({.region = box.region,
                       .rank = placing_rank(bytes, tensor.spec.dtype),
                       .number = boxes.size(),
                       .bytes = bytes});
    }
  }
  first_box_.push_back(boxes.size());
  std::ranges::sort(boxes, [](const Box& a, const Box& b) {
    return std::tuple(a.region, b.rank, a.number) < std::tuple(b.region, a.rank, b.number);
  });
  box_offsets_.resize(boxes.size());
  bytes_ = 0;
  const auto end_regions = [&](std::size_t until) {  // begins the next ones
    while (region_borders_.size() < until) {
      bytes_ += (division_->granule - bytes_ % division_->granule) % division_->granule;
      region_borders_.push_back(bytes_);
    }
  };
  for (const Box& box : boxes) {
    end_regions(box.region + std::size_t{1});
    box_offsets_[box.number] = bytes_;
    if (bytes_ > kMostModelBytes - kMostGranule - box.bytes)
      return invalid_argument("the model is larger than 2^62 bytes");
    bytes_ += box.bytes;
  }
  const std::uint64_t end = bytes_;
  end_regions(division_->regions);  // those without boxes
  bytes_ = end;
  std::ranges::transform(region_borders_, region_borders_.begin(),
                         [end](std::uint64_t border) { return std::min(border, end); });
  region_borders_.push_back(end);
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    tensors_[t].offset = first_box_[t] < first_box_[t + 1] ? box_offsets_[first_box_[t]] : 0;
  return absl::OkStatus();
}

std::vector<PlacedBox> Layout::boxes(const Placement& tensor) const {
  const std::vector<std::int64_t>& shape = tensor.spec.shape;
  if (!division_)
    return {{.offset = tensor.offset, .begin = std::vector<std::int64_t>(shape.size(), 0), .shape = shape}};
  const auto t = static_cast<std::size_t>(&tensor - tensors_.data());
  std::vector<PlacedBox> placed;
  std::size_t number = first_box_[t];
  for (CutBox& box : division_->cuts[division_->cut_of[t]].boxes(shape))
    placed.push_back({.offset = box_offsets_[number++], .begin = std::move(box.offset), .shape = std::move(box.shape)});
  return placed;
}

}  // namespace bascule::inline v0
