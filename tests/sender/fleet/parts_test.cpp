// The fleet's parts that keep lists, each alone: catch-ups, departures, the loan of a single copy.
#include <gmock/gmock.h>

#include <bascule/sender/fleet/catch_ups.h>
#include <bascule/sender/fleet/departures.h>
#include <bascule/sender/fleet/single_copy.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class FleetParts : public testing::Test {
 protected:
  static constexpr Epoch kEpoch = 7;
  static constexpr SlotId kSlot{kEpoch, 0};
  explicit FleetParts(std::string_view options = "slots=2")
      : books_(FleetRules{.endpoint = *Endpoint::parse(cat("shm:///run/x?", options)), .epoch = kEpoch}) {
    books_.layout = std::make_shared<const Layout>(*Layout::arrange({TensorSpec{"w", DType::kF32, {4}}}, {}));
    std::vector<OfferedSlot> slots;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(books_.endpoint.slots); ++i)
      slots.push_back({.id = {kEpoch, i}, .memory = &memory_});
    books_.slots.open(slots);
  }
  Member& join(std::string name, Holder instance, std::string group = "", std::uint32_t rank = 0) {
    Hello hello;
    hello.worker = std::move(name);
    hello.instance = instance;
    hello.group = std::move(group);
    hello.rank = rank;
    Member& member = books_.roster.add(next_++, std::move(hello));
    books_.roster.move(member, Member::State::kWelcomed);
    return member;
  }
  void publish(Version version) {
    const Publication publication{.version = version, .slot = kSlot, .bytes = 16, .digest = std::nullopt};
    books_.slots.single_copy() ? books_.slots.take_single_copy({}) : books_.slots.take({});
    books_.slots.announced();
    books_.slots.seal(kSlot, version);
    books_.slots.publish(publication);
    books_.versions.publish(version);
  }
  template <typename Which>
  std::vector<Which> done() const {
    std::vector<Which> found;
    for (const Action& action : turn_.actions)
      if (const auto* which = std::get_if<Which>(&action)) found.push_back(*which);
    return found;
  }

  SlotMemory memory_;
  Books books_;
  FleetTurn turn_{{Clock::time_point(std::chrono::hours(1))}};
  WorkerId next_ = 1;
};

// Workers that come and go cause warnings, even if no version is sent for a long time.
TEST_F(FleetParts, WarningsBetweenTwoReportsHaveALimit) {
  for (int i = 0; i < 200; ++i) books_.warn(cat("warning ", i));
  const std::vector<std::string> warnings = books_.warnings();
  ASSERT_EQ(warnings.size(), 65U);
  EXPECT_EQ(warnings.front(), "warning 0");
  EXPECT_EQ(warnings.back(), "and 136 more warnings");
  books_.reported();
  EXPECT_THAT(books_.warnings(), IsEmpty());
}

// ---- CatchUps ----

TEST_F(FleetParts, ACatchUpTellsAWorkerOfTheNewestVersionOnce) {
  CatchUps catch_ups(books_);
  Member& member = join("w", 1);
  catch_ups.begin(member, turn_);
  EXPECT_THAT(turn_.actions, IsEmpty()) << "nothing is published";
  publish(3);
  catch_ups.begin(member, turn_);
  ASSERT_TRUE(member.catch_up());
  EXPECT_THAT(turn_.going_on, ElementsAre(*member.catch_up()));
  ASSERT_EQ(done<action::Offer>().size(), 1u);
  EXPECT_EQ(done<action::Offer>().front().prepare.version, 3u);
  catch_ups.begin(member, turn_);
  EXPECT_EQ(done<action::Offer>().size(), 1u);
}

TEST_F(FleetParts, ACatchUpThatWasAbortedWaitsForItsSlotToBeReleased) {
  CatchUps catch_ups(books_);
  Member& member = join("w", 1);
  publish(3);
  catch_ups.begin(member, turn_);
  InFlightVersion& version = *books_.versions.find(*member.catch_up());
  version.round.abort(absl::AbortedError("a test"));
  version.round.next(turn_.now);
  catch_ups.end(version, turn_);
  EXPECT_FALSE(member.catch_up());
  EXPECT_EQ(member.releasing, kSlot);
  EXPECT_EQ(catch_ups.next(), member.id) << "it is looked at again";
  catch_ups.looked_at(member.id);
  EXPECT_EQ(catch_ups.next(), std::nullopt);
  catch_ups.begin(member, turn_);
  EXPECT_FALSE(member.catch_up());
}

// ---- Departures ----

TEST_F(FleetParts, AMemberIsThereUntilItMayLeaveAndLeavesOnce) {
  Departures departures(books_);
  const WorkerId id = join("w", 1).id;
  departures.evict(id, unavailable("first"));
  departures.evict(id, unavailable("second"));
  EXPECT_TRUE(books_.roster.find(id)->departing);
  departures.let_leave(turn_);
  departures.evict(id, unavailable("third"));
  departures.let_leave(turn_);
  EXPECT_EQ(books_.roster.find(id), nullptr);
  ASSERT_EQ(done<action::Close>().size(), 1u);
  EXPECT_EQ(message_of(done<action::Close>().front().why), "worker w: first");
  EXPECT_TRUE(turn_.writer_waits);
}

TEST_F(FleetParts, AGroupLeavesWithItsRank) {
  Departures departures(books_);
  const WorkerId id = join("tp-0", 1, "tp", 0).id;
  join("tp-1", 2, "tp", 1);
  join("other", 3);
  departures.evict(id, unavailable("lost"));
  departures.let_leave(turn_);
  EXPECT_EQ(books_.roster.members().size(), 1u);
  EXPECT_EQ(books_.roster.members().begin()->second.name(), "other");
}

TEST_F(FleetParts, ALeaseOutlivesItsMemberUntilItsHolderIsGone) {
  Departures departures(books_);
  publish(3);
  books_.slots.lease(kSlot, join("w", 1).holder());
  departures.evict(1, unavailable("lost"));
  departures.let_leave(turn_);
  EXPECT_TRUE(books_.slots.holds(kSlot, 1));
  event::HolderGone gone{1};
  departures.note(gone, turn_);
  EXPECT_FALSE(books_.slots.holds(kSlot, 1));
}

// ---- SingleCopy ----

class SingleCopyParts : public FleetParts {
 protected:
  SingleCopyParts() : FleetParts("slots=1") {
    publish(1);
    books_.slots.lease(kSlot, member_.holder());
    single_copy_.take();
    books_.slots.announced();
    sent_ = &books_.versions.begin(Round({.version = 2, .slot = kSlot, .bytes = 16, .digest = std::nullopt},
                                         {{member_.id, "w"}}, {.single_copy = true}),
                                   /*is_catch_up=*/false);
  }
  Member& member_ = join("w", 1);
  SingleCopy single_copy_{books_};
  InFlightVersion* sent_ = nullptr;
};

TEST_F(SingleCopyParts, IsWrittenOnceItsReaderHasYielded) {
  single_copy_.let_write(*sent_, turn_);
  EXPECT_THAT(done<action::MayWrite>(), IsEmpty());
  sent_->round.ready(member_.id);
  single_copy_.let_write(*sent_, turn_);
  single_copy_.let_write(*sent_, turn_);
  EXPECT_EQ(done<action::MayWrite>().size(), 1u);
  EXPECT_TRUE(sent_->written);
}

TEST_F(SingleCopyParts, ALoanThatCameBackInTimeIsNotEnded) {
  sent_->round.ready(member_.id);
  single_copy_.let_write(*sent_, turn_);
  single_copy_.judge(sent_->round.limit().until, turn_);
  EXPECT_EQ(done<action::EndLoan>().size(), 1u);
  event::LoanEnded ended{.version = 2, .in_time = true};
  single_copy_.note(ended, turn_);
  single_copy_.judge(sent_->round.limit().until, turn_);
  EXPECT_EQ(done<action::EndLoan>().size(), 1u);
  EXPECT_TRUE(sent_->round.under_way());
}

TEST_F(SingleCopyParts, ALoanThatLapsedIsAbortedAndTorn) {
  sent_->round.ready(member_.id);
  single_copy_.let_write(*sent_, turn_);
  event::LoanEnded ended{.version = 2, .in_time = false};
  single_copy_.note(ended, turn_);
  EXPECT_TRUE(sent_->torn);
  EXPECT_FALSE(sent_->round.under_way());
}

}  // namespace
}  // namespace bascule
