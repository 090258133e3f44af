// Which of the workers of one GPU shows buffers, how many, and when it gives them up.
#include <atomic>
#include <future>
#include <map>

#include "schemes/relay/sharing_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;

// So a worker that stays on an old version does not stop the others.
TEST_F(RelaySharing, AnEngineWithWhichOthersShareShowsOneBufferMore) {
  a.tell({.kind = Kind::kShow, .share = true});
  a.expect_shown();
  EXPECT_THAT(a.shown.descriptors, testing::SizeIs(4));
  introduce(b, a);
  get(1);
  const SlotView stays = take(b, 1);
  std::optional<SlotView> mine = take(a, 1);
  for (Version version = 2; version < 8; ++version) {
    fill(version);
    EXPECT_THAT(receive(a, version).get(), IsOk());
    expect_got(a, version);
    const SlotView next = take(a, version);
    a.receiver->end_read(std::exchange(mine, next)->slot);
  }
  EXPECT_TRUE(a.line->silent()) << "none came alone";
  a.tell({.kind = Kind::kShow, .share = true});
  rest();
  EXPECT_TRUE(a.line->silent()) << "it has shown them";
  b.receiver->end_read(stays.slot);
}

TEST_F(RelaySharing, WithoutRoomForThatItGoesOnWithWhatItHas) {
  RelayMemory memory = test::host_relay_memory();
  const auto room = std::make_shared<std::atomic<int>>(2);
  memory.make_buffer = [room, make_buffer = memory.make_buffer](std::uint64_t bytes) -> absl::StatusOr<ShownMemory> {
    if ((*room)-- <= 0) return absl::ResourceExhaustedError("no memory");
    return make_buffer(bytes);
  };
  const Engine c = make(3, memory);
  c.tell({.kind = Kind::kShow, .share = true});
  rest();
  EXPECT_TRUE(c.line->silent());
  serve(c, 1);
}

TEST_F(RelaySharing, ABufferHasTheSameNumberEachTime) {
  std::map<std::uint32_t, const std::byte*> addresses;
  std::optional<SlotView> before;
  for (Version version = 1; version < 8; ++version) {
    get(version);
    const SlotView shared = take(b, version), mine = take(a, version);
    EXPECT_EQ(addresses.emplace(shared.slot.index, shared.bytes.data()).first->second, shared.bytes.data());
    if (before) a.receiver->end_read(before->slot);
    before = mine;
    b.receiver->end_read(shared.slot);
    ASSERT_TRUE(b.receiver->find(shared.slot));
    EXPECT_EQ(b.receiver->find(shared.slot)->bytes.data(), shared.bytes.data());
  }
  EXPECT_EQ(addresses.size(), 2U);
  b.tell({.kind = Kind::kForget, .source = a.id});
  const Deadline deadline(test::patience());
  while (b.receiver->find({1, addresses.begin()->first}) && !deadline.passed()) rest();
  EXPECT_FALSE(b.receiver->find({1, addresses.begin()->first})) << "it is no longer mapped";
}

TEST_F(RelaySharing, AnEngineThatHidesItsBuffersFreesThemAndShares) {
  const SlotView mine = hold(a, 1);
  a.receiver->close();
  a.open_again();
  EXPECT_EQ(a.shown.message.version, 1U);
  a.tell({.kind = Kind::kHide});
  const Engine c = make(3);
  introduce(a, c);
  fill(2);
  auto shared = share(a, 2, c.id), copied = receive(c, 2);
  EXPECT_THAT(copied.get(), IsOk());
  EXPECT_THAT(shared.get(), IsOk());
  expect_got(a, 2);
  expect_got(c, 2);
  EXPECT_TRUE(same_memory(take(a, 2), take(c, 2)));
  a.receiver->end_read(mine.slot);
  EXPECT_FALSE(a.receiver->find(mine.slot));
  a.receiver->close();
  a.open_without_buffers();
  a.show();
  EXPECT_EQ(a.shown.message.version, 0U);
}

TEST_F(RelaySharing, AnEngineThatReconnectsWhileItMakesOneMoreKeepsWhatItShows) {
  std::promise<void> go_on;
  RelayMemory memory = test::host_relay_memory();
  const auto made = std::make_shared<std::atomic<int>>(0);
  memory.make_buffer = [made, came = go_on.get_future().share(),
                        make_buffer = memory.make_buffer](std::uint64_t bytes) {
    if (++*made == 3) came.wait();
    return make_buffer(bytes);
  };
  Engine c = make(3, memory);
  c.tell({.kind = Kind::kShow, .share = true});
  c.receiver->close();
  c.open_again();
  EXPECT_THAT(c.shown.descriptors, testing::SizeIs(3));
  go_on.set_value();
  c.expect_shown();
  EXPECT_THAT(c.shown.descriptors, testing::SizeIs(4));
  serve(c, 1);  // not alone
}

TEST_F(RelaySharing, AMessageToShareTheTrainersSlotMeansToCopyIt) {
  EXPECT_THAT(share(b, 1, kTrainer).get(), IsOk());
  EXPECT_EQ(b.line->next(Kind::kAlone).message.number, 1U);
  expect_whole(b, 1);
}

// A lease that does not end is waited for once.
TEST_F(RelaySharing, AStuckLeaseDelaysOneVersion) {
  get(1);
  const SlotView shared = take(b, 1);
  a.receiver->end_read(take(a, 1).slot);
  std::vector<std::chrono::steady_clock::duration> times;
  std::optional<SlotView> mine;
  for (Version version = 2; version < 8; ++version) {
    fill(version);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(receive(a, version).get(), IsOk());
    times.push_back(std::chrono::steady_clock::now() - begin);
    if (version % 2 == 1) {
      EXPECT_EQ(a.line->next(Kind::kAlone).message.number, version);
    }
    expect_got(a, version);
    const SlotView next = take(a, version);
    if (mine) a.receiver->end_read(mine->slot);
    mine = next;
  }
  EXPECT_GE(std::ranges::count_if(times, [](auto each) { return each >= std::chrono::milliseconds(20); }), 1);
  b.receiver->end_read(shared.slot);
}

}  // namespace
}  // namespace bascule::inline v0::relay
