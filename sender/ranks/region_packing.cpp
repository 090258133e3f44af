#include <bascule/sender/ranks/region_packing.h>

#include <array>
#include <utility>

#include <bascule/kernels/pack.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// For each tile that has some of the pages [first, last), the sum of the hashes of these, if they hold zeros.
std::vector<kernels::TileTotal> totals_of_zeros(std::uint64_t first, std::uint64_t last) {
  alignas(64) static constexpr std::array<std::byte, kernels::kPageBytes> kZeros{};
  static const kernels::PageSums sums = kernels::plain_page_sums(kZeros.data());
  std::vector<kernels::TileTotal> totals;
  for (std::uint64_t page = first; page < last; ++page) {
    if (page == first || page % kernels::kTilePages == 0) totals.emplace_back();
    const Digest hash = kernels::mix128(sums.first, sums.second, page);
    totals.back().add({.low = hash.low, .high = hash.high});
  }
  return totals;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionPacking>> RegionPacking::make(int device) {
  auto made = std::make_unique<RegionPacking>();
  if (device != kHost) {
    BASCULE_ASSIGN(made->queue_, open_device(device));
  }
  return made;
}

void RegionPacking::look_at(const HeldShards& held) {
  views_.clear();
  addresses_.clear();
  for (std::size_t i = 0; i < boxes_.size(); ++i) {
    const ShardedTensor& tensor = held.tensors()[boxes_[i].tensor];
    const Shard& shard = tensor.shards[boxes_[i].shard];
    views_.push_back({.name = names_[i],
                      .dtype = tensor.spec.dtype,
                      .shape = shard.shape,
                      .strides = shard.strides,
                      .data = static_cast<const std::byte*>(shard.data),
                      .device = held.device()});
    addresses_.push_back(views_.back().data);
  }
}

// The rule by which a region is arranged is Layout::arrange()'s, so it is the layout of its boxes as tensors.
absl::Status RegionPacking::plan(const Layout& layout, std::uint32_t region, const HeldShards& held,
                                 std::span<const std::uint32_t> owned) {
  std::vector<Box> all;
  for (std::uint32_t t = 0; t < held.tensors().size(); ++t)
    for (std::uint32_t s = 0; s < held.tensors()[t].shards.size(); ++s) all.push_back({t, s});
  boxes_.clear();
  names_.clear();
  std::vector<TensorSpec> specs;
  for (const std::uint32_t number : owned) {
    if (number >= all.size()) return invalid_argument("rank 0 names box ", number, " of ", all.size());
    const ShardedTensor& tensor = held.tensors()[all[number].tensor];
    const Placement* const placed = layout.find(tensor.spec.name);
    if (placed == nullptr || placed->spec.shape != tensor.spec.shape)
      return invalid_argument("tensor ", to_string(tensor.spec), " is not in rank 0's layout");
    const Shard& shard = tensor.shards[all[number].shard];
    boxes_.push_back(all[number]);
    names_.push_back(cat(tensor.spec.name, ", shard ", number));
    specs.push_back({.name = names_.back(), .dtype = placed->spec.dtype, .shape = shard.shape});
  }
  look_at(held);
  BASCULE_ASSIGN(const Layout own, Layout::arrange(std::move(specs), {}));
  BASCULE_ASSIGN(plan_, Plan::gather(own, views_));
  bytes_ = own.bytes();
  const std::uint64_t begin = layout.region_borders()[region], end = layout.region_borders()[region + 1];
  const std::uint64_t granule = layout.division()->granule;
  if (begin < end && begin % kernels::kTileBytes != 0)
    return invalid_argument("region ", region, " begins at byte ", begin, ", expected a multiple of ",
                            kernels::kTileBytes);
  if (bytes_ > end - begin || end - begin - bytes_ >= granule)
    return invalid_argument("this rank's boxes have ", bytes_, " bytes, and region ", region, " has ", end - begin);
  first_page_ = begin / kernels::kPageBytes;
  end_ = end - begin;
  zeros_ = totals_of_zeros(first_page_ + kernels::pages_of(bytes_), first_page_ + kernels::pages_of(end_));
  ++plan_number_;
  if (!queue_) return absl::OkStatus();
  device_plan_.reset();
  BASCULE_ASSIGN(device_plan_, queue_->plan(DeviceQueue::Into::kSlot, plan_.segments(), views_.size(), bytes_, {},
                                            {.first_page = first_page_}));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceTable>> RegionPacking::reach(SharedTable& table) {
  if (!queue_ || bytes_ == 0) return nullptr;
  absl::StatusOr<std::unique_ptr<DeviceTable>> reached = queue_->open_table(own_part(table));
  if (!reached.ok()) return annotate(reached.status(), "the digest table of this rank's region");
  return reached;
}

// Regions begin at whole tiles.
std::span<kernels::TileTotal> RegionPacking::own_part(SharedTable& table) const {
  return table.totals().subspan(first_page_ / kernels::kTilePages, kernels::tiles_of(end_));
}

absl::Status RegionPacking::begin(const HeldShards& held, SlotMemory& memory, bool digest, SharedTable& table,
                                  DeviceTable* on_device, kernels::ThreadPool& pool) {
  totals_ = digest ? own_part(table) : std::span<kernels::TileTotal>();
  if (bytes_ == 0) return absl::OkStatus();
  look_at(held);
  if (queue_) {
    BASCULE_TRY(known_.check(queue_->device(), views_, plan_number_, ++read_number_));
    return queue_->run(*device_plan_, addresses_, memory.device_memory.get(), {digest, digest ? on_device : nullptr},
                       held.stream());
  }
  kernels::pack(plan_.segments(), addresses_, memory.mapping.writable().subspan(memory.data_offset, bytes_), digest,
                pool, nullptr, {},
                {.first_page = first_page_,
                 .totals = digest ? totals_.first(kernels::tiles_of(bytes_)) : std::span<kernels::TileTotal>()});
  return absl::OkStatus();
}

absl::Status RegionPacking::finish(Deadline deadline) {
  if (queue_ && bytes_ > 0) BASCULE_TRY(queue_->finish(deadline).status());
  if (totals_.empty()) return absl::OkStatus();
  const std::uint64_t written = kernels::tiles_of(bytes_), first = kernels::pages_of(bytes_) / kernels::kTilePages;
  for (std::uint64_t i = 0; i < zeros_.size(); ++i) {
    kernels::TileTotal& total = totals_[first + i];
    if (first + i >= written) total = {};
    total.add(zeros_[i]);
  }
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
