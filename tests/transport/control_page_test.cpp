#include <bascule/transport/control_page.h>

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "support/status.h"
#include <bascule/transport/posix/memfd.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

absl::StatusOr<ControlPageView> view_of(const ControlPage& page, Epoch epoch) {
  return ControlPageView::map(UniqueFd(::dup(page.descriptor())), epoch);
}

TEST(ControlPage, SaysWhatWasSealed) {
  auto page = ControlPage::make(7);
  ASSERT_THAT(page, IsOk());
  const auto view = view_of(*page, 7);
  ASSERT_THAT(view, IsOk());
  for (const std::uint32_t slot : {0u, 1u, kMaxSlots - 1}) {
    EXPECT_EQ(view->read(slot).version, 0);
    const Digest digest{.low = slot + 1, .high = slot + 2};
    page->begin(slot);
    page->seal(slot, 40 + slot, 1000 + slot, digest);
    const SlotRecord record = view->read(slot);
    EXPECT_EQ(record.version, 40 + slot);
    EXPECT_EQ(record.bytes_done, 1000 + slot);
    EXPECT_EQ(record.digest, digest);
  }
  EXPECT_EQ(view->read(2).version, 0) << "each slot has its own line";
}

TEST(ControlPage, SaysWhatIsBeingWritten) {
  auto page = ControlPage::make(1);
  ASSERT_THAT(page, IsOk());
  const auto view = view_of(*page, 1);
  ASSERT_THAT(view, IsOk());
  page->seal(0, 5, 100, Digest{.low = 1, .high = 2});
  page->begin(0);
  EXPECT_EQ(view->read(0).version, 0);
  EXPECT_EQ(view->read(0).bytes_done, 0);
  EXPECT_EQ(view->read(0).digest, std::nullopt) << "the old one's";
  page->bytes_done(0).store(64, std::memory_order_release);
  EXPECT_EQ(view->read(0).bytes_done, 64);
}

TEST(ControlPage, TellsNoDigestFromOneOfZeros) {
  auto page = ControlPage::make(1);
  ASSERT_THAT(page, IsOk());
  const auto view = view_of(*page, 1);
  ASSERT_THAT(view, IsOk());
  page->seal(0, 5, 100, std::nullopt);
  EXPECT_EQ(view->read(0).digest, std::nullopt);
  page->seal(0, 6, 100, Digest{});
  EXPECT_EQ(view->read(0).digest, Digest{});
}

TEST(ControlPage, HasTheDigestTablesOfItsSlots) {
  constexpr std::uint64_t kTiles = 700;  // three pages each
  auto page = ControlPage::make(1, kTiles);
  ASSERT_THAT(page, IsOk());
  const auto view = view_of(*page, 1);
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(view->table(0), std::nullopt) << "not sealed";
  for (const std::uint32_t slot : {0u, 1u, kMaxSlots - 1, kMaxSlots}) {
    ASSERT_THAT(page->add_table(slot), IsOk());
    page->begin(slot);
    const std::span<kernels::TileTotal> table = page->fill_table(slot);
    ASSERT_EQ(table.size(), kTiles);
    for (std::size_t tile = 0; tile < kTiles; ++tile) table[tile] = {.low = slot, .high = tile};
    page->seal(slot, 5, 100, Digest{.low = 1, .high = 2});
  }
  for (const std::uint32_t slot : {1u, kMaxSlots - 1, kMaxSlots}) {
    kernels::TileTotal sum;
    const auto table = view->table(slot, {}, &sum);
    ASSERT_TRUE(table.has_value());
    EXPECT_EQ(sum, (kernels::TileTotal{.low = slot * kTiles, .high = kTiles * (kTiles - 1) / 2}));
    for (std::size_t tile = 0; tile < kTiles; ++tile)
      ASSERT_EQ((*table)[tile], (kernels::TileTotal{.low = slot, .high = tile}));
  }
  page->seal(1, 6, 100, std::nullopt);
  EXPECT_EQ(view->table(1), std::nullopt) << "sealed without a digest";
  page->begin(1);
  page->seal(1, 7, 100, Digest{.low = 1, .high = 2});
  EXPECT_EQ(view->table(1), std::nullopt) << "the table is an older version's";
}

TEST(ControlPage, HasNoTablesUnlessTheyWereRequested) {
  auto page = ControlPage::make(1);
  ASSERT_THAT(page, IsOk());
  EXPECT_THAT(page->add_table(0), IsOk());
  EXPECT_TRUE(page->table(0).empty());
  page->seal(0, 5, 100, Digest{.low = 1, .high = 2});
  EXPECT_EQ(view_of(*page, 1)->table(0), std::nullopt);
}

TEST(ControlPage, HasNothingBeyondItsLines) {
  auto page = ControlPage::make(1);
  ASSERT_THAT(page, IsOk());
  EXPECT_EQ(view_of(*page, 1)->read(kMaxSlots).version, 0);
  EXPECT_EQ(view_of(*page, 1)->read(~0u).version, 0);
}

// Every field of a record derives from its version, so that a mix of two records is noticed.
TEST(ControlPage, IsNeverReadTorn) {
  constexpr Version kVersions = 20000;
  auto page = ControlPage::make(1);
  ASSERT_THAT(page, IsOk());
  const auto view = view_of(*page, 1);
  ASSERT_THAT(view, IsOk());
  std::atomic<bool> reading = false, done = false;
  Version seen = 0;
  std::thread reader([&] {
    while (!done.load()) {
      const SlotRecord record = view->read(0);
      reading.store(true);
      if (record.version == 0) {
        ASSERT_EQ(record.digest, std::nullopt);
        continue;
      }
      ASSERT_GE(record.version, seen);
      seen = record.version;
      ASSERT_EQ(record.bytes_done, 3 * record.version);
      ASSERT_EQ(record.digest.has_value(), record.version % 3 != 0);
      if (record.digest) {
        ASSERT_EQ(*record.digest, (Digest{.low = record.version, .high = ~record.version}));
      }
    }
  });
  while (!reading.load()) std::this_thread::yield();
  for (Version version = 1; version <= kVersions; ++version) {
    page->begin(0);
    page->seal(0, version, 3 * version,
               version % 3 == 0 ? std::nullopt : std::optional(Digest{.low = version, .high = ~version}));
  }
  done.store(true);
  reader.join();
  EXPECT_EQ(view->read(0).version, kVersions);
}

TEST(ControlPageView, RefusesAnotherEpoch) {
  auto page = ControlPage::make(7);
  ASSERT_THAT(page, IsOk());
  EXPECT_THAT(view_of(*page, 8), StatusIs(StatusCode::kInvalidArgument, HasSubstr("of epoch 7, expected 8")));
}

TEST(ControlPageView, RefusesSealedMemoryThatIsNoControlPage) {
  auto memory = make_memfd("bascule-test", 4096);
  ASSERT_THAT(memory, IsOk());
  EXPECT_THAT(ControlPageView::map(UniqueFd(::dup(memory->descriptor.get())), 0),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected a control page")));
}

// The error for a page whose header has `value` at byte `at`.
absl::Status page_with(std::size_t at, std::byte value) {
  auto page = ControlPage::make(7);
  auto memory = make_memfd("bascule-test", 4096);
  EXPECT_THAT(page, IsOk());
  EXPECT_THAT(memory, IsOk());
  std::array<std::byte, 64> header;
  EXPECT_EQ(::pread(page->descriptor(), header.data(), header.size(), 0), 64);
  header[at] = value;
  std::memcpy(memory->writable().data(), header.data(), header.size());
  return ControlPageView::map(UniqueFd(::dup(memory->descriptor.get())), 7).status();
}

TEST(ControlPageView, RefusesAnotherFormat) {  // after a magic number of 8 bytes
  EXPECT_THAT(page_with(8, std::byte{9}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has format 9, expected 2")));
}

// Else a sender could make its reader touch memory that is not there.
TEST(ControlPageView, RefusesTablesThatThePageDoesNotHold) {
  for (const std::uint64_t tiles : {std::uint64_t{1}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    auto memory = make_memfd("bascule-test", 4096);
    ASSERT_THAT(memory, IsOk());
    const auto page = ControlPage::make(7);
    const auto good = Mapping::map(page->descriptor(), 4096, Access::kReadOnly);
    ASSERT_THAT(good, IsOk());
    std::memcpy(memory->writable().data(), good->bytes().data(), 4096);
    std::memcpy(memory->writable().data() + 32, &tiles, sizeof(tiles));
    EXPECT_THAT(ControlPageView::map(UniqueFd(::dup(memory->descriptor.get())), 7).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected at")));
  }
}

TEST(ControlPageView, RefusesDigestsOfAnotherFunction) {
  EXPECT_THAT(page_with(24, std::byte{1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("of function 1, expected 2")));
}

TEST(ControlPageView, RefusesMemoryThatTheSenderCouldShrink) {
  UniqueFd plain(::memfd_create("bascule-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(plain.get(), 4096), 0);
  EXPECT_THAT(ControlPageView::map(std::move(plain), 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not sealed")));
}

}  // namespace
}  // namespace bascule
