#include <bascule/receiver/part_check.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

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

std::shared_ptr<const WholeTiles> WholeTiles::make(const Plan& plan, const Layout& layout) {
  const absl::StatusOr<std::vector<ByteRange>> ranges = ranges_of(plan.segments());
  if (!ranges.ok()) return nullptr;  // so many ranges leave hardly a tile whole
  auto made = std::make_shared<WholeTiles>();
  made->ranges = whole_tiles(*ranges, layout.bytes());
  made->is_whole.resize(kernels::tiles_of(layout.bytes()));
  for (const ByteRange& range : made->ranges)
    std::fill(made->is_whole.begin() + static_cast<std::ptrdiff_t>(range.begin / kernels::kTileBytes),
              made->is_whole.begin() + static_cast<std::ptrdiff_t>(kernels::tiles_of(range.end)), std::uint8_t{1});
  return made;
}

absl::Status PartCheck::check(const Publication& publication, const Layout& layout, const SlotView& view,
                              kernels::ThreadPool& pool) const {
  const std::vector<ByteRange> wrong =
      wrong_tiles({.bytes = publication.bytes}, table, tiles->ranges, view.bytes, pool);
  return wrong.empty() ? absl::OkStatus() : wrong_bytes(publication, layout, wrong);
}

absl::Status PartCheck::check(const Publication& publication, const Layout& layout, const DigestTable& found) const {
  const std::vector<ByteRange> wrong = unequal_tiles(table, tiles->ranges, found, publication.bytes);
  return wrong.empty() ? absl::OkStatus() : wrong_bytes(publication, layout, wrong);
}

}  // namespace bascule::inline v0
