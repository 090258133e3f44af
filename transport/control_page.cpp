#include <bascule/transport/control_page.h>

#include <cstring>
#include <new>

#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {
namespace {

constexpr std::uint64_t kMagic = 0x31656c7563736142;  // "Bascule1", little-endian
constexpr std::uint32_t kFormat = 2;
constexpr std::uint64_t kControlPageBytes = 4096;
constexpr std::uint64_t kDigestAndTable = 2;  // SlotLine::has_digest

struct alignas(64) PageHeader {
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t slots;
  std::uint64_t epoch;
  std::uint32_t digest_number;
  std::uint32_t zero;
  std::uint64_t tiles;
};
static_assert(sizeof(PageHeader) + kMaxSlots * sizeof(SlotLine) <= kControlPageBytes);

// The offset of a slot's line. Indices grow without end as slots are retired. Slots that exist at the same time never
// share a line, and a reader of an older slot finds another version in its line.
constexpr std::size_t line_offset(std::uint32_t slot) {
  return sizeof(PageHeader) + (slot % kMaxSlots) * sizeof(SlotLine);
}

// Slots that share a line, at different times, also share a table.
constexpr std::uint64_t table_bytes(std::uint64_t tiles) {
  return kernels::pages_of(tiles * sizeof(kernels::TileTotal)) * kernels::kPageBytes;
}
constexpr std::uint64_t table_offset(std::uint32_t slot, std::uint64_t tiles) {
  return kControlPageBytes + (slot % kMaxSlots) * table_bytes(tiles);
}
constexpr std::uint64_t kMostTiles = kMostModelBytes / kernels::kTileBytes;

}  // namespace

absl::StatusOr<ControlPage> ControlPage::make(Epoch epoch, std::uint64_t tiles) {
  ControlPage page;
  page.tiles_ = tiles;
  BASCULE_ASSIGN(
      page.memory_,
      make_sparse_memfd("bascule-control", table_offset(0, tiles) + kMaxSlots * table_bytes(tiles), kControlPageBytes));
  new (page.memory_.writable().data()) PageHeader{.magic = kMagic,
                                                  .format = kFormat,
                                                  .slots = kMaxSlots,
                                                  .epoch = epoch,
                                                  .digest_number = kDigestNumber,
                                                  .zero = 0,
                                                  .tiles = tiles};
  for (std::uint32_t slot = 0; slot < kMaxSlots; ++slot) new (&page.line(slot)) SlotLine{};
  return page;
}

SlotLine& ControlPage::line(std::uint32_t slot) {
  return *reinterpret_cast<SlotLine*>(memory_.writable().data() + line_offset(slot));
}

// All stores of a change are releases: a reader that acquires one of them also sees the odd sequence before it, and a
// reader that sees the even sequence after it sees all of them.
void ControlPage::begin(std::uint32_t slot) {
  SlotLine& to = line(slot);
  to.sequence.fetch_add(1, std::memory_order_relaxed);
  to.version.store(0, std::memory_order_release);
  to.bytes_done.store(0, std::memory_order_release);
  filled_[slot % kMaxSlots] = false;
  to.sequence.fetch_add(1, std::memory_order_release);
}

absl::Status ControlPage::add_table(std::uint32_t slot) {
  if (tiles_ == 0) return absl::OkStatus();
  const auto add = [&]() -> absl::Status {
    BASCULE_TRY(allocate_memfd(descriptor(), table_offset(slot, tiles_), table_bytes(tiles_)));
    return memory_.mapping.populate(table_offset(slot, tiles_), table_bytes(tiles_));
  };
  return annotate(add(), "the digest table of a slot");
}

std::span<kernels::TileTotal> ControlPage::table(std::uint32_t slot) {
  if (tiles_ == 0) return {};
  return {reinterpret_cast<kernels::TileTotal*>(memory_.writable().data() + table_offset(slot, tiles_)), tiles_};
}

std::span<kernels::TileTotal> ControlPage::fill_table(std::uint32_t slot) {
  filled_[slot % kMaxSlots] = tiles_ > 0;
  return table(slot);
}

std::atomic<std::uint64_t>& ControlPage::bytes_done(std::uint32_t slot) { return line(slot).bytes_done; }

void ControlPage::seal(std::uint32_t slot, Version version, std::uint64_t bytes, const std::optional<Digest>& digest) {
  SlotLine& to = line(slot);
  to.sequence.fetch_add(1, std::memory_order_relaxed);
  to.digest_low.store(digest ? digest->low : 0, std::memory_order_release);
  to.digest_high.store(digest ? digest->high : 0, std::memory_order_release);
  const bool has_table = digest && filled_[slot % kMaxSlots];
  to.has_digest.store(has_table ? kDigestAndTable : digest ? 1 : 0, std::memory_order_release);
  to.bytes_done.store(bytes, std::memory_order_release);
  to.version.store(version, std::memory_order_release);
  to.sequence.fetch_add(1, std::memory_order_release);
}

absl::StatusOr<ControlPageView> ControlPageView::map(UniqueFd descriptor, Epoch epoch) {
  BASCULE_TRY(check_sealed(descriptor.get(), kControlPageBytes));
  ControlPageView view;
  BASCULE_ASSIGN(view.mapping_, Mapping::map(descriptor.get(), kControlPageBytes, Access::kReadOnly));
  const auto* header = reinterpret_cast<const PageHeader*>(view.mapping_.bytes().data());
  if (header->magic != kMagic)
    return invalid_argument(
        "expected a control page from the sender, found other memory; run the same version of Bascule on ",
        "both ends");
  if (header->format != kFormat)
    return invalid_argument("the sender's control page has format ", header->format, ", expected ", kFormat,
                            "; run the same version of Bascule on both ends");
  if (header->digest_number != kDigestNumber)
    return invalid_argument("the sender's control page has digests of function ", header->digest_number, ", expected ",
                            kDigestNumber, "; run the same version of Bascule on both ends");
  if (header->epoch != epoch)
    return invalid_argument("the sender's control page is of epoch ", header->epoch, ", expected ", epoch);
  view.tiles_ = header->tiles;
  if (view.tiles_ == 0) return view;
  if (view.tiles_ > kMostTiles)
    return invalid_argument("the sender's control page has digest tables of ", view.tiles_, " tiles, expected at most ",
                            kMostTiles);
  const std::uint64_t bytes = table_offset(0, view.tiles_) + kMaxSlots * table_bytes(view.tiles_);
  BASCULE_TRY(check_sealed(descriptor.get(), bytes));
  // Pages of tables that no slot has would be allocated if they were read.
  BASCULE_ASSIGN(view.mapping_, Mapping::map(descriptor.get(), bytes, Access::kReadOnly, Pages::kLater));
  return view;
}

std::optional<std::vector<kernels::TileTotal>> ControlPageView::table(std::uint32_t slot,
                                                                      std::vector<kernels::TileTotal> memory,
                                                                      kernels::TileTotal* sum) const {
  const auto& line = *reinterpret_cast<const SlotLine*>(mapping_.bytes().data() + line_offset(slot));
  if (tiles_ == 0 || !read(slot).digest || line.has_digest.load(std::memory_order_acquire) != kDigestAndTable)
    return std::nullopt;
  memory.resize(tiles_);
  const auto* const totals =
      reinterpret_cast<const kernels::TileTotal*>(mapping_.bytes().data() + table_offset(slot, tiles_));
  const kernels::TileTotal found = kernels::copy_and_sum({totals, tiles_}, memory);
  if (sum != nullptr) *sum = found;
  return memory;
}

SlotRecord ControlPageView::read(std::uint32_t slot) const {
  const auto& line = *reinterpret_cast<const SlotLine*>(mapping_.bytes().data() + line_offset(slot));
  const std::uint64_t before = line.sequence.load(std::memory_order_acquire);
  SlotRecord record;
  record.version = line.version.load(std::memory_order_acquire);
  const Digest digest{.low = line.digest_low.load(std::memory_order_acquire),
                      .high = line.digest_high.load(std::memory_order_acquire)};
  const bool has_digest = line.has_digest.load(std::memory_order_acquire) != 0;
  record.bytes_done = line.bytes_done.load(std::memory_order_acquire);
  const bool changing = before % 2 != 0 || line.sequence.load(std::memory_order_relaxed) != before;
  if (changing) return {};
  if (has_digest && record.version != 0) record.digest = digest;
  return record;
}

}  // namespace bascule::inline v0
