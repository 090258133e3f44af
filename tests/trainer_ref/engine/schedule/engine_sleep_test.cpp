// Engines that fall asleep and wake up.
#include <gmock/gmock.h>

#include <future>

#include "engine_fixture.h"

namespace bascule::ref {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST_P(EngineTest, SleepsOnceWhatRunsHasEndedAndFlipsMeanwhile) {
  start();
  serve(1);
  runner_->open(false);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 50));
  wait_until([&] { return engine_->stats().requests == 1; });
  std::future<absl::Status> asleep = sleep();
  EXPECT_THAT(refusal(), HasSubstr("POST /wake_up first"));
  EXPECT_FALSE(runner_->asleep());
  runner_->open(true);
  EXPECT_EQ(answer.get().choices.at(0)->generated(), 50U);
  EXPECT_TRUE(asleep.get().ok());
  EXPECT_TRUE(runner_->asleep());
  serve(2);
  EXPECT_EQ(engine_->stats().served.version, 2U);
  EXPECT_THAT(refusal(), HasSubstr("POST /wake_up first"));

  EXPECT_TRUE(wake_up().get().ok());
  EXPECT_FALSE(runner_->asleep());
  EXPECT_THAT(ask(request_of({1, 2, 3}, 50)).get().choices.at(0)->versions, Each(2));
}

TEST_P(EngineTest, SleepsAtOnceWhereWhatRunsIsToBeEnded) {
  start();
  serve(1);
  runner_->open(false);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 900));
  wait_until([&] { return engine_->stats().requests == 1; });
  std::future<absl::Status> asleep = sleep(/*abort=*/true);
  runner_->open(true);
  EXPECT_TRUE(asleep.get().ok());
  const Completion completion = answer.get();
  EXPECT_EQ(completion.choices.at(0)->finish, FinishReason::kAbort);
  EXPECT_EQ(engine_->stats().blocks_used, 0U);
}

TEST_P(EngineTest, StaysAsleepWhereThereIsNotTheMemory) {
  start();
  serve(1);
  ASSERT_TRUE(sleep().get().ok());
  runner_->lend_memory(true);
  EXPECT_EQ(wake_up().get().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(engine_->stats().asleep);
  EXPECT_THAT(refusal(), HasSubstr("POST /wake_up first"));
  runner_->lend_memory(false);
  EXPECT_TRUE(wake_up().get().ok());
  EXPECT_FALSE(engine_->stats().asleep);
}

TEST_P(EngineTest, WakesUpBeforeItSlept) {
  start();
  serve(1);
  runner_->open(false);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 50));
  wait_until([&] { return engine_->stats().requests == 1; });
  std::future<absl::Status> asleep = sleep(), awake = wake_up();
  runner_->open(true);
  EXPECT_EQ(asleep.get().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(awake.get().ok());
  EXPECT_EQ(answer.get().choices.at(0)->generated(), 50U);
  EXPECT_FALSE(runner_->asleep());
}

// The last sleep wins, however the calls of several clients interleave with requests: no step without a cache.
TEST_P(EngineTest, ManyMaySendItToSleepAndWakeItUp) {
  start();
  serve(1);
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        sleep().wait();
        (void)engine_->submit(request_of({1, 2, 3}, 3), [](Completion) {});
        wake_up().wait();
        (void)engine_->submit(request_of({1, 2, 3}, 3), [](Completion) {});
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(wake_up().get().ok());
  EXPECT_EQ(ask(request_of({1}, 5)).get().choices.size(), 1U);
}

}  // namespace
}  // namespace bascule::ref
