// Chaos of a sharded trainer in host memory.
#include "sender/ranks/chaos_of_ranks.h"

namespace bascule::test {
namespace {

class ShardedChaos : public ChaosOfRanks, public testing::WithParamInterface<const char*> {};

// "regions" has a slot of a region per rank, as GPUs do.
INSTANTIATE_TEST_SUITE_P(Over, ShardedChaos, testing::Values("shm", "memmap", "regions"),
                         [](const testing::TestParamInfo<const char*>& info) { return std::string(info.param); });

TEST_P(ShardedChaos, SurvivesAnyRankThatDiesOrStandsStillAtAnyMessage) {
  use(GetParam());
  survive();
}

}  // namespace
}  // namespace bascule::test
