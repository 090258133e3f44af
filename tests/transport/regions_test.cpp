#include <bascule/transport/regions.h>

#include <gmock/gmock.h>

#include <algorithm>

#include "support/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/tensor.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Regions, HavePageNumbersThatRunOn) {
  const auto regions = Regions::make(std::vector<std::uint64_t>{10'000, 0, 5'000});
  ASSERT_THAT(regions, IsOk());
  EXPECT_THAT(regions->list(), ElementsAre(Region{0, 10'000}, Region{3, 0}, Region{3, 5'000}));
  EXPECT_EQ(regions->bytes(), 17'288U);
}

TEST(Regions, OfOneSlotAreTheSlot) {
  const auto regions = Regions::make(std::vector<std::uint64_t>{12'345});
  ASSERT_THAT(regions, IsOk());
  EXPECT_THAT(regions->list(), ElementsAre(Region{0, 12'345}));
  EXPECT_EQ(regions->bytes(), 12'345U);
  EXPECT_EQ(Regions::make({})->bytes(), 0U);
}

TEST(Regions, AreRefusedIfTooManyOrTooLarge) {
  EXPECT_THAT(Regions::make(std::vector<std::uint64_t>(kMostRegions)), IsOk());
  EXPECT_THAT(Regions::make(std::vector<std::uint64_t>(kMostRegions + 1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 1024 regions")));
  EXPECT_THAT(Regions::make(std::vector<std::uint64_t>{kMostModelBytes}), IsOk());
  EXPECT_THAT(Regions::make(std::vector<std::uint64_t>{kMostModelBytes, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("region 1 has 1 bytes")));
  EXPECT_THAT(Regions::make(std::vector<std::uint64_t>{5, UINT64_MAX}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("region 1")));
}

TEST(Regions, TablesProveThemselvesAgainstTheDigest) {
  kernels::ThreadPool pool(2);
  const std::vector<std::uint64_t> sizes = {3 * kernels::kTileBytes + 100, 5'000, 0, kernels::kTileBytes};
  const auto regions = Regions::make(sizes);
  ASSERT_THAT(regions, IsOk());
  std::vector<std::byte> whole(regions->bytes());  // with the zeros between the regions
  std::vector<DigestTable> tables;
  for (const Region& region : regions->list()) {
    const auto bytes = std::span(whole).subspan(region.first_page * kernels::kPageBytes, region.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + region.first_page + 1);
    tables.emplace_back(kernels::tiles_of(region.bytes));
    kernels::digest(bytes, pool, {.first_page = region.first_page, .totals = tables.back()});
  }
  const Digest digest = kernels::digest(whole, pool);
  EXPECT_THAT(regions->check(tables, digest), IsOk());
  const kernels::TileTotal wrong{.low = 1};
  EXPECT_THAT(regions->check(tables, digest, &wrong), StatusIs(StatusCode::kDataLoss, HasSubstr(to_hex(digest))));

  tables[0][1].low += 1;
  EXPECT_THAT(regions->check(tables, digest), StatusIs(StatusCode::kDataLoss, HasSubstr(to_hex(digest))));
  tables[0][1].low -= 1;
  std::swap(tables[0], tables[3]);
  EXPECT_THAT(regions->check(tables, digest),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("region 0 has 1 tiles; expected 4 for 196708 bytes")));
  tables.pop_back();
  EXPECT_THAT(regions->check(tables, digest), StatusIs(StatusCode::kInvalidArgument, HasSubstr("4 regions, found 3")));
}

}  // namespace
}  // namespace bascule
