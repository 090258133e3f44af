#include <bascule/transport/slot_ring.h>

#include <gmock/gmock.h>

#include <map>
#include <random>

namespace bascule {
namespace {

using State = SlotRing::State;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Epoch kEpoch = 3;

SlotRing ring_of(int slots) {
  SlotRing ring(kEpoch);
  for (int i = 0; i < slots; ++i) ring.add();
  return ring;
}

SlotId publish(SlotRing& ring, Version version) {
  const std::optional<SlotId> slot = ring.begin();
  EXPECT_TRUE(slot.has_value());
  if (!slot) return {};
  ring.seal(*slot, version);
  ring.publish(*slot);
  return *slot;
}

TEST(SlotRing, TakesASlotThroughItsStates) {
  SlotRing ring = ring_of(2);
  EXPECT_EQ(ring.newest(), std::nullopt);
  const SlotId slot = *ring.begin();
  EXPECT_EQ(slot.epoch, kEpoch);
  EXPECT_EQ(ring.state(slot), State::kWriting);
  EXPECT_EQ(ring.version(slot), 0);
  ring.seal(slot, 5);
  EXPECT_EQ(ring.state(slot), State::kSealed);
  EXPECT_EQ(ring.newest(), std::nullopt) << "no worker was told to flip yet";
  ring.publish(slot);
  EXPECT_EQ(ring.state(slot), State::kPublished);
  EXPECT_EQ(ring.newest(), slot);
  EXPECT_EQ(ring.version(slot), 5);
}

TEST(SlotRing, AlternatesBetweenTwoSlots) {
  SlotRing ring = ring_of(2);
  const SlotId first = publish(ring, 1), second = publish(ring, 2);
  EXPECT_NE(first, second);
  EXPECT_EQ(ring.state(first), State::kFree);
  EXPECT_EQ(publish(ring, 3), first);
}

TEST(SlotRing, WritesOneSlotAtATime) {
  SlotRing ring = ring_of(4);
  const SlotId slot = *ring.begin();
  EXPECT_EQ(ring.begin(), std::nullopt);
  ring.seal(slot, 1);
  EXPECT_EQ(ring.begin(), std::nullopt);
  ring.abort(slot);
  EXPECT_NE(ring.begin(), std::nullopt);
}

TEST(SlotRing, AbortKeepsTheNewest) {
  SlotRing ring = ring_of(2);
  const SlotId newest = publish(ring, 1);
  const SlotId slot = *ring.begin();
  ring.seal(slot, 2);
  ring.abort(slot);
  EXPECT_EQ(ring.newest(), newest);
  EXPECT_EQ(ring.state(slot), State::kFree);
}

TEST(SlotRing, WaitsForAReaderAndNamesIt) {
  SlotRing ring = ring_of(2);
  const SlotId first = publish(ring, 1);
  ring.lease(first, 11);
  ring.lease(first, 12);
  ring.lease(publish(ring, 2), 13);
  EXPECT_EQ(ring.begin(), std::nullopt);
  EXPECT_THAT(ring.holders(), ElementsAre(11, 12)) << "13 reads the newest, which is not in the way";
  ring.release(first, 11);
  EXPECT_EQ(ring.begin(), std::nullopt);
  EXPECT_THAT(ring.holders(), ElementsAre(12));
  ring.release(first, 12);
  EXPECT_EQ(ring.begin(), first);
}

TEST(SlotRing, ReleasesNothingThatIsNotLeased) {
  SlotRing ring = ring_of(2);
  const SlotId first = publish(ring, 1);
  ring.lease(first, 11);
  publish(ring, 2);
  ring.release({kEpoch, 99}, 11);
  ring.release({kEpoch - 1, first.index}, 11);  // an earlier sender's
  ring.release(first, 12);
  EXPECT_EQ(ring.begin(), std::nullopt);
  EXPECT_THAT(ring.holders(), ElementsAre(11));
}

TEST(SlotRing, ReleasesEverythingOfOneHolder) {
  SlotRing ring = ring_of(2);
  const SlotId first = publish(ring, 1);
  ring.lease(first, 11);
  ring.lease(publish(ring, 2), 11);
  ring.release_all(11);
  EXPECT_THAT(ring.holders(), IsEmpty());
  EXPECT_EQ(ring.begin(), first);
}

TEST(SlotRing, KeepsOnlyTheLeasesThatAreClaimed) {
  SlotRing ring = ring_of(3);
  const SlotId first = publish(ring, 1);
  ring.lease(first, 11);
  ring.lease(first, 12);
  const SlotId second = publish(ring, 2);
  ring.lease(second, 11);
  publish(ring, 3);
  const std::vector<SlotId> held = {second, {kEpoch - 1, first.index}};  // the latter is another sender's slot
  ring.keep_only(11, held);
  EXPECT_THAT(ring.holders(), ElementsAre(11, 12));
  ring.release(second, 11);
  EXPECT_THAT(ring.holders(), ElementsAre(12));
}

TEST(SlotRing, RetiresASlotWhoseHolderWillNotLetGo) {
  SlotRing ring = ring_of(2);
  const SlotId first = publish(ring, 1);
  ring.lease(first, 11);
  ring.lease(first, 12);
  const std::vector<Holder> stuck = {12};
  EXPECT_EQ(ring.retirable(stuck, 1), std::nullopt) << "the other slot can be written";
  const SlotId second = publish(ring, 2);
  EXPECT_EQ(ring.retirable({}, 1), std::nullopt) << "11 and 12 will let go by themselves";
  EXPECT_EQ(ring.retirable(stuck, 1), first);
  ring.retire(first);
  EXPECT_EQ(ring.state(first), State::kRetired);
  EXPECT_THAT(ring.slots(), ElementsAre(second));
  EXPECT_EQ(ring.begin(), std::nullopt);
  const SlotId third = ring.add();
  EXPECT_EQ(third.index, 2u) << "an index is never given to other memory";
  EXPECT_EQ(publish(ring, 3), third);

  ring.lease(second, 12);
  EXPECT_EQ(ring.retirable(stuck, 1), std::nullopt) << "one at a time";
  EXPECT_THAT(ring.holders(), ElementsAre(11, 12));
  EXPECT_THAT(ring.gone(), IsEmpty());
  ring.release(first, 11);
  ring.release(first, 12);
  EXPECT_THAT(ring.gone(), ElementsAre(first));
  ring.drop(first);
  EXPECT_THAT(ring.gone(), IsEmpty());
  ring.release(first, 12);  // does nothing: the slot is gone
  EXPECT_EQ(ring.retirable(stuck, 1), second);
}

TEST(SlotRing, RetiresAsManyAsThereAreSpares) {
  SlotRing ring = ring_of(2);
  const std::vector<Holder> stuck = {11, 12, 13, 14, 15};
  for (Version version = 1; version <= 2; ++version) ring.lease(publish(ring, version), 10 + version);
  for (int spares = 1; spares <= 3; ++spares) {
    EXPECT_EQ(ring.retirable(stuck, spares - 1), std::nullopt) << spares;
    const std::optional<SlotId> retired = ring.retirable(stuck, spares);
    ASSERT_TRUE(retired);
    ring.retire(*retired);
    ring.add();
    const Version version = 2 + static_cast<Version>(spares);
    ring.lease(publish(ring, version), 10 + version);
  }
  EXPECT_EQ(ring.retired().size(), 3);
  ring.release_all(11);
  EXPECT_TRUE(ring.retirable(stuck, 3)) << "a slot without readers is about to be freed";
}

TEST(SlotRing, WaitsWhereOneOfSeveralSlotsWillComeFree) {
  SlotRing ring = ring_of(3);
  const SlotId first = publish(ring, 1);
  ring.lease(first, 12);
  const SlotId second = publish(ring, 2);
  ring.lease(second, 11);
  publish(ring, 3);
  const std::vector<Holder> stuck = {12};
  EXPECT_EQ(ring.retirable(stuck, 1), std::nullopt);
  ring.lease(second, 12);
  EXPECT_EQ(ring.retirable(stuck, 1), first);
}

TEST(SlotRing, WritesInPlaceWhereEveryReaderStepsAside) {
  SlotRing ring = ring_of(1);
  const SlotId slot = publish(ring, 1);
  ring.lease(slot, 11);
  ring.lease(slot, 12);
  const std::vector<Holder> one = {11}, both = {11, 12, 13};
  EXPECT_EQ(ring.begin_single_copy(one), std::nullopt);
  EXPECT_EQ(ring.begin_single_copy(both), slot);
  EXPECT_EQ(ring.newest(), std::nullopt) << "no worker may begin to read now";
  EXPECT_EQ(ring.begin_single_copy(both), std::nullopt);
  EXPECT_THAT(ring.holders_of(slot), ElementsAre(11, 12));
  ring.abort(slot);
  EXPECT_EQ(ring.newest(), slot);
  EXPECT_EQ(ring.version(slot), 1) << "nothing was written";

  ASSERT_EQ(ring.begin_single_copy(both), slot);
  ring.seal(slot, 2);
  ring.publish(slot);
  EXPECT_EQ(ring.version(slot), 2);
  ASSERT_EQ(ring.begin_single_copy(both), slot);
  ring.spoil(slot);
  EXPECT_EQ(ring.newest(), std::nullopt) << "half written is no version";
  EXPECT_EQ(ring.state(slot), State::kFree);
  EXPECT_EQ(ring.begin_single_copy(both), slot) << "and what comes next makes it whole again";
}

// Random events in any order that a coordinator could cause, against a model of each holder's reads.
TEST(SlotRing, NeverWritesWhatSomebodyReads) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    SlotRing ring = ring_of(2 + static_cast<int>(seed % 3));
    std::set<std::pair<std::uint32_t, Holder>> leases;
    std::map<std::uint32_t, Version> published;
    std::optional<SlotId> writing, newest;
    Version version = 0;
    bool staged = false;
    for (int event = 0; event < 400; ++event) {
      const SlotId slot{kEpoch, static_cast<std::uint32_t>(random() % ring.slots().size())};
      const Holder holder = random() % 4;
      switch (random() % 8) {
        case 0:
        case 1:
          if (const std::optional<SlotId> begun = ring.begin()) {
            ASSERT_EQ(writing, std::nullopt) << "seed " << seed;
            ASSERT_NE(begun, newest) << "seed " << seed;
            for (Holder reader = 0; reader < 4; ++reader)
              ASSERT_FALSE(leases.contains({begun->index, reader})) << "seed " << seed;
            writing = begun, staged = false;
          } else {
            bool free = false;
            for (std::uint32_t i = 0; i < ring.slots().size(); ++i)
              free |= !writing && newest != SlotId{kEpoch, i} &&
                      leases.lower_bound({i, 0}) == leases.lower_bound({i + 1, 0});
            ASSERT_FALSE(free) << "a slot could have been written, seed " << seed;
          }
          break;
        case 2:
          if (!writing || staged) break;
          ring.seal(*writing, ++version);
          staged = true;
          break;
        case 3:
          if (!writing || !staged) break;
          ring.publish(*writing);
          newest = std::exchange(writing, std::nullopt);
          published[newest->index] = version;
          break;
        case 4:
          if (!writing || random() % 2 == 0) break;
          ring.abort(*std::exchange(writing, std::nullopt));
          break;
        case 5:  // with a prepare: the slot under way, or the newest for a catch-up
          if (slot != writing && slot != newest) break;
          ring.lease(slot, holder);
          leases.emplace(slot.index, holder);
          break;
        case 6:
          ring.release(slot, holder);
          leases.erase({slot.index, holder});
          break;
        case 7:
          if (random() % 4 != 0) break;
          ring.keep_only(holder, {&slot, 1});
          std::erase_if(leases, [&](const auto& lease) { return lease.second == holder && lease.first != slot.index; });
          break;
      }
      ASSERT_EQ(ring.newest(), newest) << "seed " << seed;
      ASSERT_TRUE(!newest || ring.version(*newest) == published[newest->index]) << "seed " << seed;
      int count = 0;
      for (std::uint32_t i = 0; i < ring.slots().size(); ++i) count += ring.state({kEpoch, i}) == State::kPublished;
      ASSERT_EQ(count, newest ? 1 : 0) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace bascule
