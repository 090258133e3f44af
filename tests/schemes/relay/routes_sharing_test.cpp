// Which workers of a GPU show buffers, and which share the buffers of another.
#include "schemes/relay/routes_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

class RoutesSharing : public RoutesFixture {
 protected:
  void come(WorkerId worker, const std::string& place) {
    tell(event::Joined{worker});
    tell(event::Heard{worker, {.kind = Kind::kHere, .place = place}});
  }
  void show(WorkerId worker, const std::string& place) {
    tell(event::Heard{worker, {.kind = Kind::kBuffers, .place = place}});
  }
  std::vector<WorkerId> told_to_show() const {
    std::vector<WorkerId> workers;
    for (const auto& each : all<action::Say>())
      if (each.message.kind == Kind::kShow && !each.message.share) workers.push_back(each.worker);
    return workers;
  }
  std::vector<WorkerId> sharing() const {
    std::vector<WorkerId> workers;
    for (const auto& each : all<action::Deliver>())
      if (each.message.share) workers.push_back(each.worker);
    return workers;
  }
  // Workers 1, 2 and 3 on one GPU, 4 and 5 on another.
  void two_gpus() {
    for (const WorkerId worker : {1, 2, 3}) come(worker, "A");
    for (const WorkerId worker : {4, 5}) come(worker, "B");
    show(1, "A");
    show(4, "B");
  }
};

TEST_F(RoutesSharing, TheFirstWorkerOfAGpuShowsBuffersAndTheOthersShareThem) {
  come(1, "A");
  EXPECT_THAT(told_to_show(), ElementsAre(1));
  come(2, "A");
  EXPECT_THAT(told_to_show(), IsEmpty());
  come(3, "B");
  EXPECT_THAT(told_to_show(), ElementsAre(3));
  EXPECT_EQ(routes.path_of(2), "") << "not before the first has buffers";
  show(1, "A");
  EXPECT_EQ(routes.path_of(2), "relay");
  show(3, "B");
  want(1, {1, 2, 3});
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(1, kTrainer), Pair(2, 1), Pair(3, 1)));
  EXPECT_THAT(sharing(), ElementsAre(2));
  EXPECT_TRUE(introduced(2, 1));
}

TEST_F(RoutesSharing, TheOwnerIsToldOnceThatOthersShare) {
  come(1, "A");
  show(1, "A");
  EXPECT_THAT(all<action::Say>(), IsEmpty());
  come(2, "A");
  EXPECT_TRUE(told(1, Kind::kShow).share);
  come(3, "A");
  EXPECT_THAT(all<action::Say>(), IsEmpty());
}

TEST_F(RoutesSharing, ADeliveryWaitsUntilItIsKnownWhoShares) {
  come(1, "A");
  come(2, "A");
  want(1, {1, 2});
  EXPECT_THAT(taken(), IsEmpty());
  show(1, "A");
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(1, kTrainer), Pair(2, 1)));
  got(1, {1, 2});
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RoutesSharing, NoWorkerCopiesFromOneThatShares) {
  two_gpus();
  want(1, {1, 2, 3, 4, 5});
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(1, kTrainer), Pair(2, 1), Pair(3, 1), Pair(4, 1), Pair(5, 4)));
  EXPECT_THAT(sharing(), UnorderedElementsAre(2, 3, 5));
  got(1, {2, 3});
  remove(1);
  EXPECT_THAT(redirected(), ElementsAre(Pair(4, kTrainer))) << "2 and 3 have all of it, but show nothing";
}

TEST_F(RoutesSharing, AVersionIsHandedOnOnlyIfAnotherEngineCopiesIt) {
  two_gpus();
  want(1, {1, 2, 3});
  EXPECT_FALSE(told(1, Kind::kTake).handed_on);
  got(1, {1, 2, 3});
  want(2, {1, 2, 3, 4});
  EXPECT_TRUE(told(1, Kind::kTake).handed_on);
  EXPECT_TRUE(told(4, Kind::kTake).handed_on);
}

TEST_F(RoutesSharing, WithoutThatEngineTheVersionIsCopied) {
  two_gpus();
  want(1, {2, 3});
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(2, kTrainer), Pair(3, kTrainer))) << "engine 1 does not get it";
  EXPECT_THAT(sharing(), IsEmpty());
}

TEST_F(RoutesSharing, AWorkerThatJoinsLateSharesWhatIsThere) {
  two_gpus();
  want(1, {1});
  got(1, {1});
  want(2, {2}, 1);
  EXPECT_THAT(sharing(), ElementsAre(2));
  EXPECT_TRUE(told(2, Kind::kTake).whole);
}

TEST_F(RoutesSharing, IfTheEngineFailsTheOthersCopy) {
  two_gpus();
  want(1, {1, 2, 3});
  hear(1, Kind::kAlone, 1);
  EXPECT_THAT(redirected(), UnorderedElementsAre(Pair(2, kTrainer), Pair(3, kTrainer)));
  got(1, {1, 2, 3});
  want(2, {1, 2, 3});
  EXPECT_THAT(sharing(), UnorderedElementsAre(2, 3));
  hear(1, Kind::kLeft, 2);
  EXPECT_THAT(redirected(), UnorderedElementsAre(Pair(2, kTrainer), Pair(3, kTrainer)));
  want(3, {1, 2, 3});
  hear(2, Kind::kCannot, 3, 1);
  EXPECT_THAT(redirected(), ElementsAre(Pair(2, kTrainer)));
}

TEST_F(RoutesSharing, IfTheEngineLeavesTheNextOneShowsBuffers) {
  two_gpus();
  want(1, {1, 2, 3});
  remove(1);
  EXPECT_THAT(told_to_show(), ElementsAre(2));
  EXPECT_THAT(redirected(), UnorderedElementsAre(Pair(2, kTrainer), Pair(3, kTrainer)));
  got(1, {2, 3});
  want(2, {2, 3});
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(2, kTrainer), Pair(3, kTrainer))) << "it has no buffers yet";
  show(2, "A");
  got(2, {2, 3});
  want(3, {2, 3});
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(2, kTrainer), Pair(3, 2)));
  EXPECT_THAT(sharing(), ElementsAre(3));
}

TEST_F(RoutesSharing, IfTheEngineThatShouldShowLeavesTheNextOneIsTold) {
  come(1, "A");
  come(2, "A");
  want(1, {1, 2});
  remove(1);
  EXPECT_THAT(told_to_show(), ElementsAre(2));
  show(2, "A");
  EXPECT_THAT(taken(), ElementsAre(Pair(2, kTrainer)));
  remove(2);
  EXPECT_THAT(told_to_show(), IsEmpty());
  EXPECT_EQ(ended[1], 1);
}

// ---- engines that come back ----

TEST_F(RoutesSharing, AnEngineThatComesBackHidesItsBuffersIfAnotherShowsSome) {
  two_gpus();
  remove(1);
  show(2, "A");
  tell(event::Joined{6});
  show(6, "A");
  EXPECT_EQ(told(6, Kind::kHide).kind, Kind::kHide);
  want(1, {2, 3, 6});
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(2, kTrainer), Pair(3, 2), Pair(6, 2)));
  EXPECT_THAT(sharing(), UnorderedElementsAre(3, 6));
}

TEST_F(RoutesSharing, IfItComesFirstTheOtherHidesItsOwn) {
  two_gpus();
  remove(1);
  EXPECT_THAT(told_to_show(), ElementsAre(2));
  tell(event::Joined{6});
  show(6, "A");
  show(2, "A");
  EXPECT_EQ(told(2, Kind::kHide).kind, Kind::kHide);
  want(1, {2, 3, 6});
  EXPECT_THAT(sharing(), UnorderedElementsAre(2, 3));
}

TEST_F(RoutesSharing, WhatItHasWhenItComesBackIsShared) {
  two_gpus();
  remove(1);
  tell(event::Joined{6});
  tell(event::Heard{6, {.kind = Kind::kBuffers, .version = 7, .place = "A"}});
  want(1, {3}, 7);
  EXPECT_THAT(taken(), ElementsAre(Pair(3, 6)));
  EXPECT_THAT(sharing(), ElementsAre(3));
  EXPECT_TRUE(told(3, Kind::kTake).whole);
  want(2, {2}, 8);
  EXPECT_THAT(taken(), ElementsAre(Pair(2, kTrainer)));
}

TEST_F(RoutesSharing, OtherBuffersOfAnEngineAreIntroducedAgain) {
  two_gpus();
  want(1, {1, 2});
  show(1, "A");
  EXPECT_TRUE(introduced(2, 1)) << "even while it shares a version";
  EXPECT_FALSE(introduced(3, 1)) << "it does not know that engine yet";
}

TEST_F(RoutesSharing, WhoCannotShowBuffersIsNotAskedAgainAndTheNextOneIs) {
  const auto cannot = [&](WorkerId worker) {
    tell(event::Heard{worker, {.kind = Kind::kBuffers, .place = "A", .why = "no memory"}});
  };
  come(1, "A");
  come(2, "A");
  want(1, {1, 2});
  cannot(1);
  EXPECT_THAT(told_to_show(), ElementsAre(2));
  cannot(2);
  EXPECT_THAT(told_to_show(), IsEmpty());
  EXPECT_THAT(taken(), UnorderedElementsAre(Pair(1, kTrainer), Pair(2, kTrainer))) << "each for itself";
  EXPECT_THAT(sharing(), IsEmpty());
  got(1, {1, 2});
  come(3, "A");
  EXPECT_THAT(told_to_show(), ElementsAre(3));
  show(3, "A");
  want(2, {1, 2, 3});
  EXPECT_THAT(sharing(), UnorderedElementsAre(1, 2));
}

}  // namespace
}  // namespace bascule::inline v0::relay
