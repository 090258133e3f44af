// A LeaseTracker, and shorthands for the events in tests.
#pragma once

#include <bascule/receiver/lease_tracker.h>

#include <gmock/gmock.h>

#include <memory>
#include <optional>

namespace bascule {

using Takes = LeaseTracker::Takes;

inline constexpr Epoch kTrackedEpoch = 7;
inline constexpr LeaseNumber kClaimed = 0;  // in the greeting
inline constexpr SlotId kSlot0{kTrackedEpoch, 0}, kSlot1{kTrackedEpoch, 1}, kSlot2{kTrackedEpoch, 2};

MATCHER_P2(Says, slot, lease, "") {
  return arg.released && arg.released->slot == slot && arg.released->lease == LeaseNumber(lease);
}
MATCHER(SaysNothing, "") { return !arg.released; }
MATCHER_P2(Holds, slot, version, "") { return arg.slot == slot && arg.version == Version(version); }

class LeaseTrackerTest : public testing::Test {
 protected:
  void join(Takes takes = Takes::kInPlace) {
    leases_ = LeaseTracker(takes);
    leases_.greet();
    leases_.welcome(kTrackedEpoch, {0, 1, 2});
  }
  LocalVersion local(Version version, SlotId slot) const {
    return {.attachment = attachment_, .version = version, .slot = slot, .lease = slot};
  }
  // The engine's own set, copied from a slot.
  LocalVersion copied(Version version, SlotId slot) const {
    LocalVersion made = local(version, slot);
    made.slot = {0, 0};
    made.copy = std::make_shared<const CopyAtFlip>(
        CopyAtFlip{.publication = publication(version, slot), .view = {.slot = slot, .bytes = {}}});
    return made;
  }
  static Publication publication(Version version, SlotId slot) {
    return {.version = version, .slot = slot, .bytes = 1, .digest = std::nullopt};
  }
  // The lease has the version's number.
  void prepare(Version version, SlotId slot) { leases_.prepare(publication(version, slot), version, {0, 1, 2}); }
  // Brings a version to a follower's gate.
  void offer(Version version, SlotId slot) {
    prepare(version, slot);
    EXPECT_FALSE(leases_.offer(local(version, slot), false));
  }
  // Brings a version to the gate.
  std::optional<LeaseTracker::Departing> decide(const LocalVersion& next) {
    prepare(next.version, next.lease);
    leases_.arrive();
    return leases_.decide(next, std::nullopt);
  }
  // Brings a version to the flip.
  std::optional<LeaseTracker::Departing> flip_to(const LocalVersion& next, bool late = false) {
    EXPECT_FALSE(decide(next));
    return leases_.flipped(next, late);
  }
  LeaseTracker::Freed give_back(const std::optional<LeaseTracker::Departing>& departing) {
    EXPECT_TRUE(departing);
    return departing ? leases_.given_back(departing->number) : LeaseTracker::Freed{};
  }
  LeaseTracker::Claim come_back() {
    leases_.drop();
    leases_.hang_up();
    LeaseTracker::Claim claim = leases_.greet();
    leases_.welcome(kTrackedEpoch, {0, 1, 2});
    return claim;
  }

  const std::shared_ptr<Attachment> attachment_ = std::make_shared<Attachment>();
  LeaseTracker leases_;
};

}  // namespace bascule
