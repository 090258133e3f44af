// Engines that are paused and resumed, and whose cache is cleared.
#include <gmock/gmock.h>

#include <future>

#include "engine_fixture.h"

namespace bascule::ref {
namespace {

using ::testing::Each;

class EnginePauseTest : public EngineTest {
 protected:
  using Status = std::future<absl::Status>;
  template <typename Ask>
  static Status told(const Ask& ask) {
    const auto promise = std::make_shared<std::promise<absl::Status>>();
    ask([promise](const absl::Status& status) { promise->set_value(status); });
    return promise->get_future();
  }
  Status pause(PauseMode mode) {
    return told([&](Engine::Told done) { engine_->pause(mode, /*clear_cache=*/true, std::move(done)); });
  }
  Status resume() {
    return told([&](Engine::Told done) { engine_->resume(std::move(done)); });
  }
  Status reset_cache(bool recompute) {
    return told([&](Engine::Told done) { engine_->reset_cache(recompute, std::move(done)); });
  }
  // A request of which some tokens are generated, and then none for now.
  std::future<Completion> begin(std::int64_t max_tokens) {
    runner_->open(false);
    std::future<Completion> answer = ask(request_of({1, 2, 3}, max_tokens));
    runner_->allow(5);
    wait_until([&] { return engine_->stats().generated_tokens >= 3; });
    return answer;
  }
  static bool is_done(const std::future<Completion>& answer) {
    return answer.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  }
};

TEST_P(EnginePauseTest, KeepsWhatRunsWhereItIsAndFlipsMeanwhile) {
  start();
  serve(1);
  std::future<Completion> answer = begin(50);
  Status paused = pause(PauseMode::kKeep);
  runner_->open(true);
  EXPECT_TRUE(paused.get().ok());
  EXPECT_TRUE(engine_->stats().paused);
  const std::uint64_t generated = engine_->stats().generated_tokens;
  serve(2);
  std::future<Completion> later = ask(request_of({4}, 5));
  EXPECT_FALSE(is_done(later));
  EXPECT_FALSE(is_done(answer));
  EXPECT_EQ(engine_->stats().generated_tokens, generated);
  EXPECT_EQ(engine_->stats().running, 1U);

  EXPECT_TRUE(resume().get().ok());
  EXPECT_FALSE(engine_->stats().paused);
  const Completion completion = answer.get();
  EXPECT_EQ(completion.choices.at(0)->generated(), 50U);
  EXPECT_EQ(completion.choices.at(0)->versions.front(), 1U);
  EXPECT_EQ(completion.choices.at(0)->versions.back(), 2U);
  EXPECT_THAT(later.get().choices.at(0)->versions, Each(2));
}

TEST_P(EnginePauseTest, AFlipDoesNotWaitForWhatAPauseKeeps) {
  start({.on_update = OnUpdate::kWait, .wait_at_most = absl::Hours(1)});
  serve(1);
  std::future<Completion> answer = begin(50);
  Status paused = pause(PauseMode::kKeep);
  runner_->open(true);
  ASSERT_TRUE(paused.get().ok());
  serve(2);
  EXPECT_TRUE(resume().get().ok());
  EXPECT_EQ(answer.get().choices.at(0)->versions.back(), 2U);
}

TEST_P(EnginePauseTest, LetsWhatRunsFinishAndBeginsNothing) {
  start();
  serve(1);
  std::future<Completion> answer = begin(50);
  Status paused = pause(PauseMode::kWait);
  std::future<Completion> later = ask(request_of({4}, 5));
  EXPECT_EQ(paused.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  runner_->open(true);
  EXPECT_TRUE(paused.get().ok());
  EXPECT_EQ(answer.get().choices.at(0)->generated(), 50U);
  EXPECT_FALSE(is_done(later));
  EXPECT_EQ(engine_->stats().waiting, 1U);
  EXPECT_TRUE(resume().get().ok());
  EXPECT_EQ(later.get().choices.at(0)->generated(), 5U);
}

TEST_P(EnginePauseTest, EndsWhatRunsWhereAsked) {
  start();
  serve(1);
  std::future<Completion> answer = begin(900);
  Status paused = pause(PauseMode::kAbort);
  runner_->open(true);
  EXPECT_TRUE(paused.get().ok());
  EXPECT_EQ(answer.get().choices.at(0)->finish, FinishReason::kAbort);
  EXPECT_EQ(engine_->stats().blocks_used, 0U);
  std::future<Completion> later = ask(request_of({4}, 5));
  EXPECT_FALSE(is_done(later));
  EXPECT_TRUE(resume().get().ok());
  EXPECT_EQ(later.get().choices.at(0)->generated(), 5U);
}

TEST_P(EnginePauseTest, APauseThatEndsEarlyTellsWhoAskedForIt) {
  start();
  serve(1);
  std::future<Completion> answer = begin(50);
  Status paused = pause(PauseMode::kWait);
  Status resumed = resume();
  runner_->open(true);
  EXPECT_EQ(paused.get().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(resumed.get().ok());
  EXPECT_EQ(answer.get().choices.at(0)->generated(), 50U);
}

// What was accepted must end before the cache is freed.
TEST_P(EnginePauseTest, SleepAndWakeUpEndAPause) {
  start();
  serve(1);
  std::future<Completion> answer = begin(50);
  Status paused = pause(PauseMode::kKeep);
  runner_->open(true);
  ASSERT_TRUE(paused.get().ok());
  EXPECT_TRUE(sleep().get().ok());
  EXPECT_EQ(answer.get().choices.at(0)->generated(), 50U);
  EXPECT_TRUE(pause(PauseMode::kAbort).get().ok()) << "asleep";
  EXPECT_TRUE(wake_up().get().ok());
  EXPECT_FALSE(engine_->stats().paused);
  EXPECT_EQ(ask(request_of({4}, 5)).get().choices.at(0)->generated(), 5U);
}

TEST_P(EnginePauseTest, ForgetsWhatWasComputed) {
  start();
  serve(1);
  const std::vector<std::int64_t> prompt(64, 7);
  ask(request_of(prompt, 2)).wait();
  ask(request_of(prompt, 2)).wait();
  const std::uint64_t reused = engine_->stats().reused_tokens;
  EXPECT_GT(reused, 0U);
  EXPECT_TRUE(reset_cache(false).get().ok());
  ask(request_of(prompt, 2)).wait();
  EXPECT_EQ(engine_->stats().reused_tokens, reused);
  ASSERT_TRUE(pause(PauseMode::kWait).get().ok());
  ASSERT_TRUE(resume().get().ok());
  ask(request_of(prompt, 2)).wait();
  EXPECT_EQ(engine_->stats().reused_tokens, reused) << "a pause also forgets it";
}

TEST_P(EnginePauseTest, RecomputesWhatRunsWhereAsked) {
  start();
  serve(1);
  std::future<Completion> answer = begin(50);
  const std::uint64_t preempted = engine_->stats().preemptions;
  Status reset = reset_cache(/*recompute=*/true);
  runner_->open(true);
  EXPECT_TRUE(reset.get().ok());
  EXPECT_THAT(answer.get().choices.at(0)->completion(),
              ::testing::ElementsAreArray(expected_completion({1, 2, 3}, 0, 50)));
  EXPECT_EQ(engine_->stats().preemptions, preempted + 1);
}

INSTANTIATE_TEST_SUITE_P(Runners, EnginePauseTest,
                         ::testing::Values(SimulatedRunner::Ahead::kNo, SimulatedRunner::Ahead::kYes), name_of_ahead);

}  // namespace
}  // namespace bascule::ref
