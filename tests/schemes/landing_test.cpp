// A worker's copies: which is written, which is read, and what a device that still writes keeps from being used.
#include <bascule/schemes/landing.h>

#include <gmock/gmock.h>

#include <set>

#include "support/status.h"

namespace bascule::inline v0 {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;
using State = Landing::Copy::State;

class LandingTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto allocate = [this](std::uint64_t bytes,
                                 std::string_view what) -> absl::StatusOr<std::shared_ptr<std::byte>> {
      if (full) return absl::ResourceExhaustedError(std::string("no memory for ").append(what));
      return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
    };
    ASSERT_THAT(landing.open(allocate, kHost, 1000, 2), IsOk());
  }
  Landing::Copy& begin(Version version, std::span<const Version> spared = {}) {
    return **landing.begin(version, spared);
  }
  SlotView serve(Version version) {
    Landing::Copy& copy = begin(version);
    landing.came(copy, std::nullopt);
    return landing.take(*landing.whole(version), 1);
  }
  bool full = false;
  Landing landing;
};

TEST_F(LandingTest, TwoCopiesTakeTurnsAndEachKeepsItsAddress) {
  std::map<std::uint32_t, const std::byte*> addresses;
  std::optional<SlotView> before;
  for (Version version = 1; version < 10; ++version) {
    const SlotView view = serve(version);
    EXPECT_GE(view.slot.index, kOwnMemory);
    EXPECT_EQ(view.bytes.size(), 1000u);
    EXPECT_EQ(addresses.emplace(view.slot.index, view.bytes.data()).first->second, view.bytes.data());
    if (before) landing.release(before->slot.index);
    before = view;
  }
  EXPECT_EQ(addresses.size(), 2u);
}

TEST_F(LandingTest, WhatIsReadIsNotWritten) {
  const SlotView a = serve(1), b = serve(2);
  Landing::Copy& third = begin(3);
  EXPECT_NE(third.memory.get(), a.bytes.data());
  EXPECT_NE(third.memory.get(), b.bytes.data());
}

TEST_F(LandingTest, ACopyBesideThoseThatAreKeptGoesWithItsReader) {
  serve(1);
  serve(2);
  const SlotView third = serve(3);
  landing.release(third.slot.index);
  EXPECT_NE(begin(4).number, third.slot.index) << "its number stands for memory that is gone";
}

TEST_F(LandingTest, WithoutRoomItSaysWhatIsMissing) {
  serve(1);
  serve(2);
  full = true;
  EXPECT_THAT(landing.begin(3), StatusIs(StatusCode::kResourceExhausted, HasSubstr("a copy of the weights")));
}

TEST_F(LandingTest, WhatCameAndWasNotTakenGivesWay) {
  landing.came(begin(1), std::nullopt);
  EXPECT_NE(landing.whole(1), nullptr);
  begin(2);
  EXPECT_EQ(landing.whole(1), nullptr) << "nobody takes it any more";
}

// A version that was aborted may come again, with other bytes.
TEST_F(LandingTest, TheSameVersionAgainReplacesTheOneThatCame) {
  landing.came(begin(1), std::nullopt);
  const Digest newer{.low = 1, .high = 2};
  Landing::Copy& again = begin(1);
  landing.came(again, newer);
  ASSERT_EQ(landing.whole(1), &again);
  EXPECT_EQ(landing.whole(1)->digest, newer);
}

TEST_F(LandingTest, WhatComesIsNotWhole) {
  Landing::Copy& copy = begin(1);
  EXPECT_EQ(landing.whole(1), nullptr);
  landing.give_up(copy, /*still_written=*/false);
  EXPECT_EQ(landing.whole(1), nullptr);
}

TEST_F(LandingTest, WhatADeviceMayStillWriteIsUsedNoMore) {
  std::set<const std::byte*> written;
  std::vector<std::shared_ptr<std::byte>> keeps;
  std::set<std::uint32_t> numbers;
  for (Version version = 1; version < 6; ++version) {
    Landing::Copy& copy = begin(version);
    EXPECT_TRUE(numbers.insert(copy.number).second) << "a number for other memory";
    EXPECT_TRUE(written.insert(copy.memory.get()).second) << "the device writes it";
    keeps.push_back(copy.memory);
    landing.give_up(copy, /*still_written=*/true);
  }
}

// Others map the first copies, and would read what is gone.
TEST_F(LandingTest, TheFirstCopiesStayWheneverTheyAreReleased) {
  const SlotView first = serve(1), second = serve(2), third = serve(3);
  EXPECT_EQ(landing.place_of(begin(4)), std::nullopt);
  landing.release(first.slot.index);
  landing.release(second.slot.index);
  landing.release(third.slot.index);
  EXPECT_EQ(landing.place_of(begin(5)), 0u);
  EXPECT_EQ(landing.place_of(begin(6)), 1u);
}

TEST_F(LandingTest, WhatOthersReadIsNotWritten) {
  const SlotView read = serve(1);
  landing.release(read.slot.index);
  const Version spared = 1;
  EXPECT_NE(begin(2, {&spared, 1}).number, read.slot.index);
  EXPECT_EQ(landing.place_of(begin(3, {&spared, 1})), std::nullopt) << "one is spared, and to one a version comes";
  EXPECT_EQ(begin(4).number, read.slot.index);
}

TEST_F(LandingTest, AReleaseOfNothingDoesNothing) {
  landing.release(kOwnMemory + 99);
  const SlotView view = serve(1);
  landing.release(view.slot.index);
  landing.release(view.slot.index);
  Landing::Copy& coming = begin(2);
  landing.release(coming.number);  // nobody reads it
  EXPECT_EQ(coming.state, State::kComing);
}

}  // namespace
}  // namespace bascule::inline v0
