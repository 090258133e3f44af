// A worker's receive buffers: which one is written, which is read, and that a buffer is not reused while a device may
// still write it.
#include <bascule/schemes/deliveries/receive_buffers.h>

#include <gmock/gmock.h>

#include <set>

#include "support/status.h"

namespace bascule::inline v0 {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;
using State = ReceiveBuffers::Buffer::State;

class ReceiveBuffersTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto allocate = [this](std::uint64_t bytes,
                                 std::string_view what) -> absl::StatusOr<std::shared_ptr<std::byte>> {
      if (full) return absl::ResourceExhaustedError(std::string("no memory for ").append(what));
      return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
    };
    ASSERT_THAT(buffers.open(allocate, kHost, 1000, 2), IsOk());
  }
  ReceiveBuffers::Buffer& begin(Version version, std::optional<Version> spared = std::nullopt) {
    return **buffers.begin(version, [spared](const ReceiveBuffers::Buffer& each) { return each.version != spared; });
  }
  SlotView serve(Version version) {
    ReceiveBuffers::Buffer& buffer = begin(version);
    buffers.came(buffer, std::nullopt);
    return buffers.take(*buffers.whole(version), 1);
  }
  bool full = false;
  ReceiveBuffers buffers;
};

TEST_F(ReceiveBuffersTest, TwoBuffersTakeTurnsAndEachKeepsItsAddress) {
  std::map<std::uint32_t, const std::byte*> addresses;
  std::optional<SlotView> before;
  for (Version version = 1; version < 10; ++version) {
    const SlotView view = serve(version);
    EXPECT_GE(view.slot.index, kOwnMemory);
    EXPECT_EQ(view.bytes.size(), 1000u);
    EXPECT_EQ(addresses.emplace(view.slot.index, view.bytes.data()).first->second, view.bytes.data());
    if (before) buffers.end_read(before->slot.index);
    before = view;
  }
  EXPECT_EQ(addresses.size(), 2u);
}

TEST_F(ReceiveBuffersTest, WhatIsReadIsNotWritten) {
  const SlotView a = serve(1), b = serve(2);
  ReceiveBuffers::Buffer& third = begin(3);
  EXPECT_NE(third.memory.get(), a.bytes.data());
  EXPECT_NE(third.memory.get(), b.bytes.data());
}

TEST_F(ReceiveBuffersTest, ABufferBesideThoseThatAreKeptGoesWithItsReader) {
  serve(1);
  serve(2);
  const SlotView third = serve(3);
  buffers.end_read(third.slot.index);
  EXPECT_NE(begin(4).number, third.slot.index) << "its number stands for memory that is gone";
}

TEST_F(ReceiveBuffersTest, WithoutRoomItSaysWhatIsMissing) {
  serve(1);
  serve(2);
  full = true;
  EXPECT_THAT(buffers.begin(3), StatusIs(StatusCode::kResourceExhausted, HasSubstr("a receive buffer")));
}

TEST_F(ReceiveBuffersTest, WhatCameAndWasNotTakenGivesWay) {
  buffers.came(begin(1), std::nullopt);
  EXPECT_NE(buffers.whole(1), nullptr);
  begin(2);
  EXPECT_EQ(buffers.whole(1), nullptr) << "it can no longer be taken";
}

// A version that was aborted may come again, with other bytes.
TEST_F(ReceiveBuffersTest, TheSameVersionAgainReplacesTheOneThatCame) {
  buffers.came(begin(1), std::nullopt);
  const Digest newer{.low = 1, .high = 2};
  ReceiveBuffers::Buffer& again = begin(1);
  buffers.came(again, newer);
  ASSERT_EQ(buffers.whole(1), &again);
  EXPECT_EQ(buffers.whole(1)->digest, newer);
}

TEST_F(ReceiveBuffersTest, WhatComesIsNotWhole) {
  ReceiveBuffers::Buffer& buffer = begin(1);
  EXPECT_EQ(buffers.whole(1), nullptr);
  buffers.give_up(buffer, /*still_written=*/false);
  EXPECT_EQ(buffers.whole(1), nullptr);
}

TEST_F(ReceiveBuffersTest, WhatADeviceMayStillWriteIsUsedNoMore) {
  std::set<const std::byte*> written;
  std::vector<std::shared_ptr<std::byte>> keeps;
  std::set<std::uint32_t> numbers;
  for (Version version = 1; version < 6; ++version) {
    ReceiveBuffers::Buffer& buffer = begin(version);
    EXPECT_TRUE(numbers.insert(buffer.number).second) << "a number for other memory";
    EXPECT_TRUE(written.insert(buffer.memory.get()).second) << "the device writes it";
    keeps.push_back(buffer.memory);
    buffers.give_up(buffer, /*still_written=*/true);
  }
}

// Others map the first copies, and would read freed memory.
TEST_F(ReceiveBuffersTest, TheFirstBuffersStayWheneverTheyAreReleased) {
  const SlotView first = serve(1), second = serve(2), third = serve(3);
  EXPECT_EQ(begin(4).place, std::nullopt);
  buffers.end_read(first.slot.index);
  buffers.end_read(second.slot.index);
  buffers.end_read(third.slot.index);
  EXPECT_EQ(begin(5).place, 0u);
  EXPECT_EQ(begin(6).place, 1u);
}

TEST_F(ReceiveBuffersTest, WhatOthersReadIsNotWritten) {
  const SlotView read = serve(1);
  buffers.end_read(read.slot.index);
  const Version spared = 1;
  EXPECT_NE(begin(2, spared).number, read.slot.index);
  EXPECT_EQ(begin(3, spared).place, std::nullopt) << "one is spared, and to one a version comes";
  EXPECT_EQ(begin(4).number, read.slot.index);
}

TEST_F(ReceiveBuffersTest, OneReleaseEndsEachLeaseOnAVersionThatWasBorrowedTwice) {
  const auto memory = std::make_shared<std::byte>();
  const auto lease = std::make_shared<int>();
  for (int i = 0; i < 2; ++i) {
    buffers.came(*buffers.borrow(1, memory, lease), std::nullopt);
    buffers.take(*buffers.whole(1), 1);
  }
  EXPECT_EQ(lease.use_count(), 3);
  buffers.end_read(buffers.borrow(2, memory, lease)->number);
  EXPECT_EQ(lease.use_count(), 2) << "only the coming version is leased";
}

TEST_F(ReceiveBuffersTest, AReleaseOfNothingDoesNothing) {
  buffers.end_read(kOwnMemory + 99);
  const SlotView view = serve(1);
  buffers.end_read(view.slot.index);
  buffers.end_read(view.slot.index);
  ReceiveBuffers::Buffer& incoming = begin(2);
  buffers.end_read(incoming.number);  // not read
  EXPECT_EQ(incoming.state, State::kIncoming);
}

}  // namespace
}  // namespace bascule::inline v0
