// Chaos of a sharded trainer whose ranks each have a region on a GPU. With one GPU, all of them use it.
#include "sender/ranks/chaos_of_ranks.h"
#include "support/devices/gpu.h"

namespace bascule::test {
namespace {

class OneGpuChaos : public ChaosOfRanks {};
class TwoGpusChaos : public ChaosOfRanks {};

TEST_F(OneGpuChaos, SurvivesAnyRankThatDiesOrStandsStillAtAnyMessage) {
  BASCULE_NEEDS_GPUS(1);
  use("cuda-ipc", {0});
  survive();
}

TEST_F(TwoGpusChaos, SurvivesAnyRankThatDiesOrStandsStillAtAnyMessage) {
  BASCULE_NEEDS_GPUS(2);
  use("cuda-ipc", {0, 1});
  survive();
}

}  // namespace
}  // namespace bascule::test
