// A worker's end: what it accepts as a mirror, which then keeps its address.
#include <bascule/schemes/auto/receiver.h>

#include <gmock/gmock.h>

#include <thread>

#include "schemes/auto/auto_fixture.h"

namespace bascule::inline v0 {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

class Messages final : public SenderLine {
 public:
  void say(std::string bytes, std::vector<ProcessFd>) override { said.push_back(std::move(bytes)); }
  std::vector<std::string> said;
};

class AutoMirrorReader : public testing::Test {
 protected:
  AutoMirrorReader() { attach(); }

  void attach(std::uint64_t bytes = kBytes) {
    ASSERT_THAT(reader.accept({.bytes = {}, .descriptors = {}, .slots = {slot, other}, .slot_bytes = bytes}), IsOk());
    reader.open(line);
  }
  static std::vector<UniqueFd> copies_of(int descriptor, std::size_t count = 1) {
    std::vector<UniqueFd> copies;
    for (std::size_t i = 0; i < count; ++i) copies.emplace_back(::dup(descriptor));
    return copies;
  }
  void show(SlotId which, const SlotMemory& memory) {
    reader.heard(absl::StrCat("mirror of ", which.index), copies_of(memory.descriptor.get()));
  }
  absl::StatusOr<SlotView> prepare(SlotId which, absl::Duration patience = test::patience(),
                                   std::uint64_t bytes = kBytes) {
    return reader.prepare({.version = 1, .slot = which, .bytes = bytes, .digest = std::nullopt}, Deadline(patience));
  }
  static SlotMemory holding(int value, std::uint64_t bytes = kBytes) {
    SlotMemory made = *make_memfd("mirror", bytes);
    std::memset(made.writable().data(), value, bytes);
    return made;
  }

  const SlotId slot{.epoch = 7, .index = 0}, other{.epoch = 7, .index = 3};
  const std::shared_ptr<Messages> line = std::make_shared<Messages>();
  MirrorReader reader;
};

TEST_F(AutoMirrorReader, ItAsksForMirrorsEachTimeItIsAttached) {
  EXPECT_THAT(line->said, ElementsAre("mirror"));
  reader.close();
  attach();
  EXPECT_THAT(line->said, ElementsAre("mirror", "mirror"));
}

TEST_F(AutoMirrorReader, AMirrorIsReadInPlace) {
  SlotMemory mirror = holding(3);
  EXPECT_FALSE(reader.find(slot));
  show(slot, mirror);
  const absl::StatusOr<SlotView> view = prepare(slot);
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(view->slot, slot);
  EXPECT_EQ(view->device, kHost);
  ASSERT_EQ(view->bytes.size(), kBytes);
  EXPECT_EQ(static_cast<int>(view->bytes.back()), 3);
  mirror.writable().back() = std::byte{4};
  EXPECT_EQ(static_cast<int>(view->bytes.back()), 4);
  ASSERT_TRUE(reader.find(slot));
  EXPECT_EQ(reader.find(slot)->bytes.data(), view->bytes.data());
  reader.end_read(slot);
  EXPECT_EQ(prepare(slot)->bytes.data(), view->bytes.data());
}

TEST_F(AutoMirrorReader, AMirrorMayBeShownOnceItIsAskedFor) {
  const SlotMemory mirror = holding(3);
  std::thread shows([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    show(slot, mirror);
  });
  EXPECT_THAT(prepare(slot), IsOk());
  shows.join();
}

TEST_F(AutoMirrorReader, AMirrorThatIsNotShownIsWaitedForUntilTheDeadline) {
  show(other, holding(3));
  EXPECT_THAT(prepare(slot, absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("slot 0")));
}

TEST_F(AutoMirrorReader, AFileThatCanShrinkIsNoMirror) {
  const UniqueFd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), kBytes), 0);
  reader.heard("mirror of 0", copies_of(open.get()));
  EXPECT_THAT(prepare(slot).status().message(), HasSubstr("the mirror of slot 0"));
}

TEST_F(AutoMirrorReader, AMirrorThatIsTooSmallIsNotMapped) {
  reader.close();
  attach(std::uint64_t{64} << 20);
  show(slot, holding(3));
  EXPECT_FALSE(prepare(slot, test::patience(), std::uint64_t{64} << 20).ok());
  EXPECT_FALSE(reader.find(slot));
}

TEST_F(AutoMirrorReader, AMirrorThatCannotBeMappedIsTriedAgain) {
  const UniqueFd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), kBytes), 0);
  reader.heard("mirror of 0", copies_of(open.get()));
  const absl::Status first = prepare(slot).status(), second = prepare(slot, absl::Milliseconds(20)).status();
  EXPECT_FALSE(first.ok());
  EXPECT_EQ(second, first) << "and says at once why it cannot be";
  show(slot, holding(3));
  EXPECT_THAT(prepare(slot), IsOk());
}

TEST_F(AutoMirrorReader, MessagesThatShowNoMirrorOfASlotThatIsKnownAreIgnored) {
  const SlotMemory mirror = holding(3);
  const auto before = open_files();
  for (const char* message : {"mirror of 9", "mirror of ", "mirror of -1", "mirror of 99999999999", "mirror of 0 x",
                              "mirror", "Mirror of 0", ""})
    reader.heard(message, copies_of(mirror.descriptor.get()));
  for (const std::size_t count : {std::size_t{0}, std::size_t{2}})
    reader.heard("mirror of 0", copies_of(mirror.descriptor.get(), count));
  EXPECT_EQ(open_files(), before);
  EXPECT_THAT(prepare(slot, absl::Milliseconds(1)), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("slot 0")));
}

TEST_F(AutoMirrorReader, AMirrorThatIsMappedStaysWhereItIs) {
  const SlotMemory mirror = holding(3), another = holding(9);
  show(slot, mirror);
  show(slot, mirror);
  const absl::StatusOr<SlotView> view = prepare(slot);
  ASSERT_THAT(view, IsOk());
  const auto before = open_files();
  show(slot, another);
  reader.close();
  EXPECT_EQ(prepare(slot)->bytes.data(), view->bytes.data()) << "also without a sender";
  attach();
  show(slot, another);
  EXPECT_EQ(prepare(slot)->bytes.data(), view->bytes.data());
  EXPECT_EQ(static_cast<int>(view->bytes.back()), 3);
  EXPECT_EQ(open_files(), before);
}

TEST_F(AutoMirrorReader, AMirrorThatIsShownAgainWhileItIsMappedStaysWhereItIs) {
  constexpr std::uint64_t kLarge = std::uint64_t{64} << 20;  // mapping it takes a while
  reader.close();
  attach(kLarge);
  const SlotMemory mirror = holding(3, kLarge);
  show(slot, mirror);
  const auto before = open_files();
  std::atomic<bool> mapped = false;
  std::thread shows([&] {
    while (!mapped) show(slot, mirror);
  });
  const absl::StatusOr<SlotView> first = prepare(slot, test::patience(), kLarge);
  mapped = true;
  shows.join();
  ASSERT_THAT(first, IsOk());
  const absl::StatusOr<SlotView> second = prepare(slot, test::patience(), kLarge);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->bytes.data(), first->bytes.data()) << "an engine's tensors point there";
  EXPECT_EQ(open_files(), before - 1) << "what was shown is closed";
}

TEST_F(AutoMirrorReader, ALostConnectionEndsAWait) {
  std::thread closes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    reader.close();
  });
  EXPECT_THAT(prepare(slot), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connection")));
  closes.join();
}

TEST_F(AutoMirrorReader, OneThatIsNoWorkerIsToldAtOnceThatItSeesNoMirror) {
  MirrorReader looks;
  ASSERT_THAT(looks.accept({.bytes = {}, .descriptors = {}, .slots = {slot}, .slot_bytes = kBytes}), IsOk());
  EXPECT_THAT(
      looks.prepare({.version = 1, .slot = slot, .bytes = kBytes, .digest = std::nullopt}, Deadline(test::patience())),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("join as a worker")));
}

TEST_F(AutoMirrorReader, WhatALostConnectionShowedIsClosed) {
  const SlotMemory mirror = holding(3);
  const auto before = open_files();
  show(slot, mirror);
  reader.close();
  EXPECT_EQ(open_files(), before);
  attach();
  show(slot, mirror);
  EXPECT_THAT(prepare(slot), IsOk());
}

TEST_F(AutoMirrorReader, AnUnmappedMirrorIsGoneAndNotTakenAnyMore) {
  const SlotMemory mirror = holding(3);
  show(slot, mirror);
  show(other, mirror);
  ASSERT_THAT(prepare(slot), IsOk());
  const auto before = open_files();
  reader.unmap(slot);
  reader.unmap(other);
  EXPECT_FALSE(reader.find(slot));
  show(slot, mirror);
  EXPECT_EQ(open_files(), before - 1) << "also the other descriptor, which was never mapped";
}

TEST_F(AutoMirrorReader, NothingIsDeliveredToIt) {
  EXPECT_THAT(reader.receive({}, "anything", Deadline(test::patience())),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no delivery")));
}

}  // namespace
}  // namespace bascule::inline v0
