// Checks the invariants under random events, by seed.
#include "receiver/lease_tracker_world.h"

#include <cstddef>
#include <iterator>

namespace bascule::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kEvents = 40'000;
#else
constexpr std::size_t kEvents = 5'000'000;
#endif
constexpr int kEventsPerWorld = 1000;

const Kind kKinds[] = {{.name = "InPlace"},
                       {.name = "InPlaceFollower", .follower = true},
                       {.name = "OwnMemory", .own_memory = true},
                       {.name = "OwnMemoryOnADevice", .own_memory = true, .device = true},
                       {.name = "OnADevice", .device = true},
                       {.name = "CopyAtFlip", .takes = Takes::kCopyAtFlip, .device = true},
                       {.name = "CopyAtFlipFollower", .takes = Takes::kCopyAtFlip, .follower = true},
                       {.name = "CopyAhead", .takes = Takes::kCopyAhead},
                       {.name = "CopyAheadFollower", .takes = Takes::kCopyAhead, .follower = true}};

class RandomLeaseTracker : public testing::TestWithParam<Kind> {};

TEST_P(RandomLeaseTracker, ReleaseWhatNothingReadsOnce) {
  for (std::size_t world = 0; world < kEvents / kEventsPerWorld / std::size(kKinds); ++world) {
    const std::uint64_t seed = 1000 + world;
    World tried(seed, GetParam());
    for (int event = 0; event < kEventsPerWorld && !HasFailure(); ++event) {
      tried.step();
      tried.check();
      if (HasFailure()) FAIL() << "seed " << seed << ", event " << event;
    }
    tried.settle();
    if (HasFailure()) FAIL() << "seed " << seed << ", at the end";
  }
}

INSTANTIATE_TEST_SUITE_P(, RandomLeaseTracker, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace bascule::test
