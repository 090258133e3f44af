#include <bascule/trainer_ref/grpo/rollout/use_meter.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

UseMeter::Time at(int seconds) { return UseMeter::Time(std::chrono::seconds(seconds)); }

TEST(UseMeter, IdleIsAnEngineWithoutWorkWhileAnotherHasSome) {
  UseMeter meter(2);
  meter.begin(0, at(10));
  meter.begin(1, at(11));
  meter.begin(1, at(12));
  meter.end(1, at(13), 5);
  meter.end(1, at(15), 6);
  meter.end(0, at(20), 7);
  meter.begin(1, at(30));
  const std::vector<EngineUse> use = meter.use(at(32));
  EXPECT_EQ(use[0].tokens, 7);
  EXPECT_EQ(use[0].busy_seconds, 10);
  EXPECT_EQ(use[0].idle_seconds, 2) << "after 30";
  EXPECT_EQ(use[1].tokens, 11);
  EXPECT_EQ(use[1].busy_seconds, 6);
  EXPECT_EQ(use[1].idle_seconds, 6) << "before 11 and after 15, except from 20 to 30, when no engine had work";
  const EngineUse since = meter.use(at(33))[0] - use[0];
  EXPECT_EQ(since.idle_seconds, 1);
  EXPECT_EQ(since.busy_seconds, 0);
}

TEST(UseMeter, AnEngineThatIsDownIsNotIdle) {
  UseMeter meter(2);
  meter.begin(0, at(1));
  meter.set_up(1, at(2), false);
  meter.set_up(1, at(5), true);
  EXPECT_EQ(meter.use(at(6))[1].idle_seconds, 2);
}

}  // namespace
}  // namespace bascule::ref
