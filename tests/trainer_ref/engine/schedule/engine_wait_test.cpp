// Engines whose flips wait for running requests.
#include <gmock/gmock.h>

#include <future>

#include "engine_fixture.h"

namespace bascule::ref {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class EngineWait : public EngineTest {
 protected:
  // Serves version 1 and begins a request in a step, which continues when the runner's gate opens.
  std::future<Completion> begin(EngineOptions options, std::int64_t max_tokens, int n = 1) {
    options.on_update = OnUpdate::kWait;
    start(std::move(options));
    serve(1);
    runner_->open(false);
    std::future<Completion> answer = ask(request_of({1, 2, 3}, max_tokens, n));
    wait_until([&] { return engine_->stats().requests == 1; });
    return answer;
  }
  void come(Version version) {
    runner_->serve(version);
    engine_->wake();
  }
  // Lets the engine see changes made at the runner.
  void let_it_look() {
    const int looks = runner_->looks();
    wait_until([&] {
      runner_->allow(1);
      return runner_->looks() > looks + 2;
    });
  }
  static EngineOptions patient() { return {.wait_at_most = absl::Hours(1)}; }
};

TEST_P(EngineWait, WhatRunsEndsWithItsWeightsAndWhatWaitsBeginsWithTheNewOnes) {
  std::future<Completion> runs = begin(patient(), 50, 3);
  come(2);
  std::future<Completion> waits = ask(request_of({4, 5}, 5));
  runner_->open(true);
  const Completion ended = runs.get();
  ASSERT_EQ(ended.choices.size(), 3U);
  for (const auto& choice : ended.choices) {
    EXPECT_THAT(choice->versions, Each(1));
    EXPECT_THAT(choice->completion(), ElementsAreArray(expected_completion({1, 2, 3}, choice->choice, 50)));
  }
  EXPECT_THAT(waits.get().choices.at(0)->versions, Each(2));
  EXPECT_EQ(engine_->stats().flips, 2U);
}

TEST_P(EngineWait, APreemptedRequestEndsWithItsWeightsToo) {
  EngineOptions options = patient();
  options.blocks = 6;
  std::future<Completion> runs = begin(options, 60);
  std::future<Completion> other = ask(request_of({4, 5}, 60));
  wait_until([&] {
    runner_->allow(1);
    return engine_->stats().preemptions > 0;
  });
  come(2);
  std::future<Completion> waits = ask(request_of({6}, 5));
  runner_->open(true);
  for (std::future<Completion>* begun : {&runs, &other}) EXPECT_THAT(begun->get().choices.at(0)->versions, Each(1));
  EXPECT_THAT(waits.get().choices.at(0)->versions, Each(2));
}

TEST_P(EngineWait, FlipsWhenTheTimeIsUpAndWhatRunsGoesOn) {
  std::future<Completion> runs = begin({.wait_at_most = absl::Milliseconds(20)}, 900);
  come(2);
  std::future<Completion> waits = ask(request_of({4, 5}, 5));
  wait_until([&] {
    runner_->allow(1);
    return engine_->stats().flips == 2;
  });
  runner_->open(true);
  EXPECT_THAT(waits.get().choices.at(0)->versions, Each(2));
  const Completion ended = runs.get();
  const std::vector<Version>& versions = ended.choices.at(0)->versions;
  EXPECT_TRUE(std::is_sorted(versions.begin(), versions.end()));
  EXPECT_EQ(versions.front(), 1U);
  EXPECT_EQ(versions.back(), 2U);
  EXPECT_EQ(ended.choices[0]->finish, FinishReason::kLength);
}

TEST_P(EngineWait, TakesRequestsAsEverWhileNoVersionIsPending) {
  std::future<Completion> runs = begin(patient(), 900);
  let_it_look();
  std::future<Completion> joins = ask(request_of({4, 5}, 5));
  wait_until([&] {
    runner_->allow(1);
    return engine_->stats().running == 2;
  });
  runner_->open(true);
  EXPECT_THAT(joins.get().choices.at(0)->versions, Each(1));
  EXPECT_EQ(runs.get().choices.at(0)->generated(), 900U);
}

TEST_P(EngineWait, AnIdleEngineFlipsAtOnceAndSoDoesOneThatSleeps) {
  start({.on_update = OnUpdate::kWait, .wait_at_most = absl::Hours(1)});
  serve(1);
  serve(2);
  EXPECT_TRUE(sleep().get().ok());
  serve(3);
  EXPECT_EQ(engine_->stats().served.version, 3U);
}

TEST_P(EngineWait, AVersionThatDoesNotComeAfterAllHoldsNobodyUp) {
  std::future<Completion> runs = begin(patient(), 900);
  come(2);
  let_it_look();
  std::future<Completion> waits = ask(request_of({4, 5}, 5));
  let_it_look();
  EXPECT_EQ(engine_->stats().running, 1U);
  runner_->withdraw();
  wait_until([&] {
    runner_->allow(1);
    return waits.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  EXPECT_EQ(engine_->stats().running, 1U) << "the one that ran before";
  runner_->open(true);
  EXPECT_THAT(waits.get().choices.at(0)->versions, Each(1));
  EXPECT_THAT(runs.get().choices.at(0)->versions, Each(1));
}

TEST_P(EngineWait, WhatRunsWithWeightsThatMustNotBeUsedEndsAtOnce) {
  std::future<Completion> runs = begin(patient(), 16000);
  runner_->poison(absl::FailedPreconditionError("the copy was torn"));
  runner_->open(true);
  const absl::Status status = runs.get().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("the copy was torn"));
  serve(2);
  EXPECT_THAT(ask(request_of({1}, 5)).get().choices.at(0)->versions, Each(2));
}

TEST_P(EngineWait, FlipsOnceWhatRunsIsAborted) {
  std::future<Completion> runs = begin(patient(), 16000);
  come(2);
  let_it_look();
  engine_->abort_all();
  runner_->open(true);
  EXPECT_EQ(runs.get().choices.at(0)->finish, FinishReason::kAbort);
  wait_until([&] { return engine_->stats().served.version == 2; });
}

TEST_P(EngineWait, SleepsBehindTheFlipOnceWhatWaitedHasEnded) {
  std::future<Completion> runs = begin(patient(), 50);
  come(2);
  std::future<Completion> waits = ask(request_of({4, 5}, 5));
  std::future<absl::Status> asleep = sleep();
  runner_->open(true);
  EXPECT_THAT(runs.get().choices.at(0)->versions, Each(1));
  EXPECT_THAT(waits.get().choices.at(0)->versions, Each(2));
  EXPECT_TRUE(asleep.get().ok());
  EXPECT_TRUE(wake_up().get().ok());
  EXPECT_THAT(ask(request_of({1}, 5)).get().choices.at(0)->versions, Each(2));
}

INSTANTIATE_TEST_SUITE_P(Runner, EngineWait,
                         ::testing::Values(SimulatedRunner::Ahead::kNo, SimulatedRunner::Ahead::kYes), name_of_ahead);

}  // namespace
}  // namespace bascule::ref
