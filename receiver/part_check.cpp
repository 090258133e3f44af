#include <bascule/receiver/part_check.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

CheckedTiles checked(std::vector<ByteRange> tiles, const Layout& layout, std::uint64_t copied_bytes) {
  const std::uint64_t bytes = bytes_of(tiles);
  CheckedTiles made{.ranges = std::move(tiles),
                    .is_checked = std::vector<std::uint8_t>(kernels::tiles_of(layout.bytes())),
                    .bytes = {.read = std::max(bytes, copied_bytes), .verified = bytes}};
  for (const ByteRange& range : made.ranges)
    std::fill(made.is_checked.begin() + static_cast<std::ptrdiff_t>(range.begin / kernels::kTileBytes),
              made.is_checked.begin() + static_cast<std::ptrdiff_t>(kernels::tiles_of(range.end)), std::uint8_t{1});
  return made;
}

absl::Status wrong_bytes(const Publication& publication, const Layout& layout, std::span<const ByteRange> wrong) {
  return absl::DataLossError(cat("slot ", publication.slot.index, " of version ", publication.version, ": ",
                                 place_of(layout, wrong.front()), " are not the bytes that were sealed; ",
                                 bytes_of(wrong), " of the bytes that this worker verifies are in wrong tiles"));
}

}  // namespace

std::string place_of(const Layout& layout, const ByteRange& range) {
  const auto tensor = std::ranges::find_if(layout.tensors(), [&](const Placement& placed) {
    return std::ranges::any_of(layout.boxes(placed), [&](const PlacedBox& box) {
      return box.offset < range.end && range.begin < box.offset + byte_count(placed.spec.dtype, box.shape);
    });
  });
  return cat("bytes [", range.begin, ", ", range.end, ")",
             tensor == layout.tensors().end() ? "" : cat(", where tensor ", tensor->spec.name, " lies,"));
}

std::shared_ptr<const PlanTiles> PlanTiles::make(const Plan& plan, const Layout& layout) {
  const absl::StatusOr<std::vector<ByteRange>> ranges = ranges_of(plan.segments());
  if (!ranges.ok()) return nullptr;
  return std::make_shared<const PlanTiles>(
      PlanTiles{.whole = checked(whole_tiles(*ranges, layout.bytes()), layout, bytes_of(*ranges)),
                .touched = checked(touched_tiles(*ranges, layout.bytes()), layout, bytes_of(*ranges))});
}

absl::Status PartCheck::check(const Publication& publication, const Layout& layout, const SlotView& view,
                              kernels::ThreadPool& pool) const {
  const std::vector<ByteRange> wrong =
      wrong_tiles({.bytes = publication.bytes}, table, tiles->ranges, view.bytes, pool);
  return wrong.empty() ? absl::OkStatus() : wrong_bytes(publication, layout, wrong);
}

absl::Status PartCheck::check(const Publication& publication, const Layout& layout,
                              std::span<const kernels::TileTotal> found) const {
  if (kernels::equal_totals(table, found, tiles->is_checked)) return absl::OkStatus();
  return wrong_bytes(publication, layout, unequal_tiles(table, tiles->ranges, found, publication.bytes));
}

absl::StatusOr<DeviceTable*> CheckedTable::on(DeviceQueue& queue, const std::shared_ptr<const CheckedTiles>& tiles,
                                              Deadline deadline) {
  if (table_ && tiles_ == tiles) return table_.get();
  if (table_) BASCULE_TRY(queue.settle(deadline));  // an earlier call may have run out of time
  BASCULE_ASSIGN(table_, queue.make_table(tiles->is_checked.size(), tiles->is_checked));
  tiles_ = tiles;
  return table_.get();
}

}  // namespace bascule::inline v0
