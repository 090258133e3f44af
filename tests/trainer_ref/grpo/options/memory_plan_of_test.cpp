#include <bascule/trainer_ref/grpo/options/memory_plan_of.h>

#include <gmock/gmock.h>

#include <bascule/schemes/registry.h>

namespace bascule::ref {
namespace {

std::int64_t planned_slots(const std::string& sync, at::Device device) {
  const TrainFlags flags{.compute = {.device = device}};
  const absl::StatusOr<MemoryPlan> plan =
      memory_plan_of(flags, {.start = {.model = BASCULE_DEMO_MODEL},
                             .rows = {.shortest_prompt = 8, .longest_prompt = 8, .completion = 8},
                             .sync = sync});
  EXPECT_TRUE(plan.ok()) << sync << ": " << plan.status();
  if (!plan.ok()) return -1;
  return plan->peak_bytes() - plan->peak_bytes_of_libtorch();
}

TEST(MemoryPlanOf, PlansTheSlotsOfEverySchemeWhereTheyLie) {
  const at::Device gpu("cuda:0"), cpu("cpu");
  const std::int64_t two_models = planned_slots("shm:///x", cpu);
  ASSERT_GT(two_models, 0);
  std::vector<std::string> on_gpus;
  for (const Scheme& scheme : known_schemes()) {
    const std::string sync = scheme.name + ":///x";
    if (scheme.on_device) on_gpus.push_back(scheme.name);
    EXPECT_EQ(planned_slots(sync, gpu), scheme.on_device ? two_models : 0) << sync;
    EXPECT_EQ(planned_slots(sync, cpu), scheme.on_device ? 0 : two_models) << sync;
  }
  EXPECT_THAT(on_gpus, testing::UnorderedElementsAre("auto", "cuda-ipc", "nccl"));
}

TEST(MemoryPlanOf, ASlotIsAsLargeAsWhatTravels) {
  const at::Device gpu("cuda:0");
  const std::int64_t two_models = planned_slots("auto:///x", gpu);
  EXPECT_EQ(planned_slots("auto:///x?wire_dtype=bf16", gpu), two_models / 2);
  EXPECT_EQ(planned_slots("nccl://node1:29500?slots=3", gpu), two_models / 2 * 3);
  EXPECT_EQ(planned_slots("auto://node1:29500", gpu), two_models);
  EXPECT_EQ(planned_slots("cuda-ipc:///x?slots=1", gpu), 0) << "the policy's own tensors are the slot";
}

}  // namespace
}  // namespace bascule::ref
