// Roster, SlotAllocator and Versions, each alone.
#include <gmock/gmock.h>

#include <bascule/sender/fleet/roster.h>
#include <bascule/sender/fleet/slot_allocator.h>
#include <bascule/sender/fleet/versions.h>
#include <bascule/transport/status.h>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using State = Member::State;

constexpr Epoch kEpoch = 7;

Hello hello(std::string name, Holder instance, std::string group = "", std::uint32_t rank = 0) {
  Hello hello;
  hello.worker = std::move(name);
  hello.instance = instance;
  hello.ranks = group.empty() ? 1 : 2;
  hello.group = std::move(group);
  hello.rank = rank;
  return hello;
}

// ---- Roster ----

class RosterTest : public testing::Test {
 protected:
  Member& add(Hello hello) {
    Member& member = roster_.add(next_++, std::move(hello));
    roster_.move(member, State::kWelcomed);
    return member;
  }
  Roster roster_{kEpoch};
  WorkerId next_ = 1;
};

TEST_F(RosterTest, RefusesGreetingsOfOthersByName) {
  Hello other = hello("w", 1);
  other.protocol = kProtocol + 1;
  EXPECT_THAT(roster_.check(other, ConnectionKind::kUnixSocket),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("speaks protocol")));
  other = hello("w", 1);
  other.digest_number = kDigestNumber + 1;
  EXPECT_THAT(roster_.check(other, ConnectionKind::kUnixSocket),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("digest function")));
  other = hello("w", 1);
  other.epoch = kEpoch + 1;
  EXPECT_THAT(roster_.check(other, ConnectionKind::kUnixSocket),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("sender.lock was lost")));
  roster_.lost(add(hello("w", 1)));
  EXPECT_FALSE(roster_.check(hello("w", 1), ConnectionKind::kUnixSocket).ok());
  EXPECT_THAT(roster_.check(hello("w", 2), ConnectionKind::kUnixSocket), IsOk());
}

TEST_F(RosterTest, AWorkerThatTheSchemeGaveUpStaysAwayForLongerEachTime) {
  Clock::time_point now{};
  const auto seconds = [](int count) { return std::chrono::seconds(count); };
  EXPECT_THAT(roster_.check_pause("w", now), IsOk());
  for (const int pause : {1, 2, 4, 8, 16, 32, 60, 60}) {
    roster_.pause("w", now);
    EXPECT_THAT(roster_.check_pause("w", now + seconds(pause) - std::chrono::milliseconds(1)),
                StatusIs(StatusCode::kUnavailable, HasSubstr("may come back in 1ms")));
    EXPECT_THAT(roster_.check_pause("other", now), IsOk());
    now += seconds(pause);
    EXPECT_THAT(roster_.check_pause("w", now), IsOk());
  }
  roster_.mended("w");
  roster_.pause("w", now);
  EXPECT_THAT(roster_.check_pause("w", now + seconds(1)), IsOk());
}

TEST_F(RosterTest, GivesEachNameAndRankOnce) {
  add(hello("a", 1));
  add(hello("tp-0", 2, "tp", 0));
  const auto taken = [&](const Hello& hello) { return std::string(message_of(roster_.check_name(hello))); };
  EXPECT_THAT(taken(hello("a", 3)), HasSubstr("another worker named a"));
  EXPECT_THAT(taken(hello("tp", 3)), HasSubstr("a group and a worker have the same name (worker tp-0"));
  EXPECT_THAT(taken(hello("b", 3, "a")), HasSubstr("a group and a worker have the same name (worker a"));
  EXPECT_THAT(taken(hello("b", 3, "tp", 0)), HasSubstr("rank 0 of group tp is already connected"));
  Hello wide = hello("b", 3, "tp", 1);
  wide.ranks = 3;
  EXPECT_THAT(taken(wide), HasSubstr("group tp has 2 ranks"));
  EXPECT_THAT(roster_.check_name(hello("tp-1", 3, "tp", 1)), IsOk());
  roster_.remove(1);
  EXPECT_THAT(roster_.check_name(hello("a", 3)), IsOk());
}

TEST_F(RosterTest, KnowsWhomNamesMean) {
  add(hello("a", 1));
  add(hello("tp-0", 2, "tp", 0));
  add(hello("tp-1", 3, "tp", 1));
  EXPECT_THAT(*roster_.addressed({}), ElementsAre(1, 2, 3));
  EXPECT_THAT(*roster_.addressed({"tp", "a", "tp"}), ElementsAre(2, 3, 1));
  EXPECT_THAT(roster_.addressed({"tp-0"}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("name the group")));
  EXPECT_THAT(roster_.addressed({"b"}), StatusIs(StatusCode::kNotFound, HasSubstr("known are: a, tp")));
  roster_.remove(1);
  EXPECT_THAT(roster_.still_addressed({"a", "tp"}), ElementsAre(2, 3));
}

TEST_F(RosterTest, CountsTheAddressableAndThoseThatCopyBehind) {
  Member& member = add(hello("a", 1));
  EXPECT_EQ(roster_.addressable(), 1u);
  roster_.set_copies_behind(member, true);
  EXPECT_TRUE(roster_.copied_behind());
  roster_.set_catch_up(member, 5);
  EXPECT_EQ(roster_.addressable(), 0u);
  roster_.set_catch_up(member, std::nullopt);
  EXPECT_THAT(roster_.addressable_names(), ElementsAre("a"));
  roster_.remove(1);
  EXPECT_EQ(roster_.addressable(), 0u);
  EXPECT_FALSE(roster_.copied_behind());
}

TEST_F(RosterTest, FindsTheWelcomedWorkerOfAnInstance) {
  Member& before = add(hello("a", 9));
  Member& after = add(hello("b", 9));
  roster_.move(before, State::kParked);
  EXPECT_EQ(roster_.welcomed(9), &after);
  EXPECT_EQ(roster_.welcomed(8), nullptr);
}

// ---- SlotAllocator ----

class SlotAllocatorTest : public testing::Test {
 protected:
  explicit SlotAllocatorTest(std::string_view options = "")
      : endpoint_(*Endpoint::parse(cat("shm:///run/x?", options))) {
    std::vector<OfferedSlot> slots;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(endpoint_.slots); ++i)
      slots.push_back({.id = {kEpoch, i}, .memory = &memory_});
    slots_.open(slots);
  }
  SlotId publish(const Grant& grant, Version version) {
    slots_.add_memory(grant.slot, OfferedSlot{.id = grant.slot, .memory = &memory_});
    slots_.announced();
    slots_.seal(grant.slot, version);
    slots_.publish({.version = version, .slot = grant.slot, .bytes = 0, .digest = std::nullopt});
    return grant.slot;
  }
  SlotMemory memory_;
  const Endpoint endpoint_;
  SlotAllocator slots_{endpoint_, kEpoch, false, [](Holder holder) { return cat("h", holder); }};
};

TEST_F(SlotAllocatorTest, GivesOneSlotAtATimeAheadOrNot) {
  const std::optional<SlotId> ahead = slots_.take_ahead();
  ASSERT_TRUE(ahead);
  EXPECT_FALSE(slots_.take_ahead());
  const std::optional<Grant> grant = slots_.take({});
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->slot, *ahead) << "which the public thread had not taken";
  EXPECT_FALSE(slots_.ahead());
  slots_.give_back(*grant);
  EXPECT_EQ(slots_.take_ahead(), ahead);
}

TEST_F(SlotAllocatorTest, MakesASpareSlotForHoldersThatWillNotRelease) {
  const SlotId first = publish(*slots_.take({}), 1);
  slots_.lease(first, 5);
  const SlotId second = publish(*slots_.take({}), 2);
  EXPECT_NE(second, first);
  EXPECT_FALSE(slots_.take({})) << "5 will release it";
  const std::vector<Holder> unwilling = {5};
  const std::optional<Grant> spare = slots_.take(unwilling);
  ASSERT_TRUE(spare && spare->is_new);
  EXPECT_EQ(spare->spare_for, "h5 (slot 0)");
  EXPECT_THAT(slots_.spare_warning(), HasSubstr("spare slot 1 of 2: h5 (slot 0) still read"));
  slots_.add_memory(spare->slot, OfferedSlot{.id = spare->slot, .memory = &memory_});
  slots_.announced();
  EXPECT_THAT(slots_.spare_warning(), IsEmpty()) << "it was announced";
  slots_.end_leases(5);
  EXPECT_THAT(slots_.gone(), ElementsAre(first));
}

TEST_F(SlotAllocatorTest, KeepsHoldersThatLeftForAsLongAsTheyHoldAnything) {
  const SlotId slot = publish(*slots_.take({}), 1);
  slots_.left(5);
  EXPECT_THAT(slots_.left_behind(), IsEmpty());
  slots_.lease(slot, 5);
  slots_.left(5);
  EXPECT_THAT(slots_.left_behind(), ElementsAre(5));
  slots_.keep_only(5, {{.slot = slot, .version = 1}});
  EXPECT_THAT(slots_.left_behind(), IsEmpty()) << "it is welcomed again";
  EXPECT_TRUE(slots_.holds(slot, 5));
}

class SingleCopySlotAllocator : public SlotAllocatorTest {
 protected:
  SingleCopySlotAllocator() : SlotAllocatorTest("slots=1") {}
};

TEST_F(SingleCopySlotAllocator, IsTakenFromThoseThatYieldAndGivenBackAsItWas) {
  const SlotId slot = publish(*slots_.take_single_copy({}), 1);
  slots_.lease(slot, 5);
  EXPECT_FALSE(slots_.take_ahead());
  EXPECT_FALSE(slots_.take_single_copy({}));
  const std::vector<Holder> yielding = {5};
  ASSERT_TRUE(slots_.take_single_copy(yielding));
  EXPECT_FALSE(slots_.newest());
  slots_.abort(slot, /*torn=*/false);
  EXPECT_EQ(slots_.newest()->version, 1u);
}

// ---- Versions ----

Round round_of(Version version) {
  return Round({.version = version, .slot = {kEpoch, 0}, .bytes = 1, .digest = std::nullopt}, {{1, "a"}}, {});
}

TEST(VersionsTest, HaveTicketsThatAreNotUsedAgain) {
  Versions versions(0, 0);
  const Ticket first = versions.begin(round_of(1), false).ticket;
  EXPECT_EQ(versions.sent()->ticket, first);
  const Ticket catch_up = versions.begin(round_of(1), true).ticket;
  EXPECT_THAT(versions.tickets(), ElementsAre(first, catch_up));
  versions.end(first);
  EXPECT_EQ(versions.sent(), nullptr);
  EXPECT_EQ(versions.find(first), nullptr);
  EXPECT_NE(versions.begin(round_of(2), false).ticket, first);
}

TEST(VersionsTest, AskToBeWokenForTheEarliestDeadlineOnly) {
  Versions versions(0, 0);
  const Clock::time_point start{};
  const auto at = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  InFlightVersion& first = versions.begin(round_of(1), false);
  InFlightVersion& second = versions.begin(round_of(1), true);
  first.round.limit({.option = "timeout", .length = absl::Seconds(10), .until = at(10)});
  second.round.limit({.option = "timeout", .length = absl::Seconds(5), .until = at(5)});
  EXPECT_EQ(versions.wait_until(at(10)), at(10));
  versions.wakes(at(10));
  EXPECT_EQ(versions.wait_until(at(20)), std::nullopt);
  EXPECT_EQ(versions.wait_until(Clock::time_point::max()), std::nullopt);
  EXPECT_EQ(versions.wait_until(at(5)), at(5));
  versions.wakes(at(5));
  versions.woken();
  EXPECT_THAT(versions.due(at(5)), ElementsAre(second.ticket));
  EXPECT_EQ(versions.wake_behind(at(5)), at(10));
}

TEST(VersionsTest, BoundWhatOneGreetingMayClaim) {
  Versions versions(3, 4);
  const Version most = versions.most_claimed();
  EXPECT_THAT(versions.claim(100, most), IsOk());
  EXPECT_EQ(versions.used(), 100u);
  EXPECT_THAT(versions.claim(most + 1, most), StatusIs(StatusCode::kInvalidArgument, HasSubstr("the last one, 100")));
  EXPECT_EQ(versions.published(), 3u);
  Versions near_the_end(kLastVersion, kLastVersion);
  EXPECT_LT(near_the_end.most_claimed(), kLastVersion);
}

}  // namespace
}  // namespace bascule
