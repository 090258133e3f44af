#include <bascule/trainer_ref/engine/schedule/engine.h>

#include <gmock/gmock.h>

#include <future>

#include "engine_fixture.h"

namespace bascule::ref {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TEST_P(EngineTest, RefusesRequestsUntilAVersionIsServed) {
  start();
  const auto refused = engine_->submit(request_of({1}, 1), [](Completion) {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.status().message(), HasSubstr("no version is served yet"));
  serve(1);
  EXPECT_EQ(ask(request_of({1}, 1)).get().choices.size(), 1U);
}

TEST_P(EngineTest, AnswersManyRequestsEachAsIfAlone) {
  start({.limits = {.max_batch = 8, .max_step_tokens = 16}, .blocks = 12});
  serve(1);
  std::vector<std::future<Completion>> answers;
  for (std::int64_t i = 0; i < 50; ++i) answers.push_back(ask(request_of({i, i + 1, i + 2}, 1 + i % 30, 1 + i % 3)));
  for (std::int64_t i = 0; i < 50; ++i) {
    const Completion completion = answers[static_cast<std::size_t>(i)].get();
    ASSERT_EQ(completion.choices.size(), static_cast<std::size_t>(1 + i % 3));
    for (const auto& choice : completion.choices) {
      EXPECT_THAT(choice->completion(),
                  ElementsAreArray(expected_completion({i, i + 1, i + 2}, choice->choice, 1 + i % 30)));
      EXPECT_THAT(choice->versions, Each(1));
    }
  }
  EXPECT_EQ(engine_->stats().requests, 50U);
}

TEST_P(EngineTest, CompletionsOfSeveralPromptsEndWhereEachIsFull) {
  start();
  serve(1);
  CompletionRequest request = request_of({1}, 20);
  request.prompts.push_back({1, 2, 3, 4, 5});
  request.max_length = 20;
  const Completion completion = ask(std::move(request)).get();
  ASSERT_EQ(completion.choices.size(), 2U);
  EXPECT_EQ(completion.choices[0]->generated(), 19U);
  EXPECT_EQ(completion.choices[1]->generated(), 15U);
  EXPECT_EQ(completion.choices[1]->finish, FinishReason::kLength);
}

TEST_P(EngineTest, AnIdleEngineCommitsAtOnce) {
  start();
  serve(1);
  serve(2);  // waits for the flip, which comes this early only by wake()
  EXPECT_EQ(engine_->stats().served.version, 2U);
}

// A commit with a single copy waits for the receiver's I/O thread, which may be about to call wake().
TEST_P(EngineTest, IsWokenWhileItCommits) {
  start();
  std::promise<void> woken;
  std::thread io;
  bool in_time = false;
  runner_->serve(1, [&] {
    io = std::thread([&] {
      engine_->wake();
      woken.set_value();
    });
    in_time = woken.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  });
  engine_->wake();
  wait_until([&] { return engine_->stats().flips == 1; });
  io.join();
  EXPECT_TRUE(in_time);
}

TEST_P(EngineTest, ServesAnAckedVersionOnceItsCommitHasEnded) {
  start();
  std::future<absl::StatusOr<RequestId>> submitted;
  std::future<EngineStats> stats;
  runner_->serve(1, [&] {
    const std::uint64_t begun = engine_->commits_begun();
    EXPECT_LT(engine_->commits_ended(), begun);
    const auto settle = [this, begun] { wait_until([&] { return engine_->commits_ended() >= begun; }); };
    submitted = std::async(std::launch::async, [this, settle] {
      settle();
      return engine_->submit(request_of({1}, 1), [](Completion) {});
    });
    stats = std::async(std::launch::async, [this, settle] {
      settle();
      return engine_->stats();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // their requests have arrived by then
  });
  engine_->wake();
  wait_until([&] { return engine_->stats().flips == 1; });
  EXPECT_TRUE(submitted.get().ok());
  EXPECT_EQ(stats.get().served.version, 1U);
}

TEST_P(EngineTest, NeitherSubmitNorStatsWaitForACommit) {
  start();
  serve(1);
  std::promise<std::chrono::steady_clock::duration> took;
  runner_->serve(2, [&] {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(engine_->stats().served.version, 1U);
    EXPECT_TRUE(engine_->submit(request_of({1}, 1), [](Completion) {}).ok());
    took.set_value(std::chrono::steady_clock::now() - begin);
  });
  engine_->wake();
  EXPECT_LT(took.get_future().get(), std::chrono::milliseconds(400));
}

TEST_P(EngineTest, SaysWhatItServedWhileACommitLasts) {
  start();
  serve(1);
  std::promise<void> begun, written;
  runner_->serve(2, [&] {
    begun.set_value();
    written.get_future().wait();
  });
  engine_->wake();
  begun.get_future().wait();
  EXPECT_EQ(engine_->stats().served.version, 1U);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 5));
  written.set_value();
  EXPECT_THAT(answer.get().choices.at(0)->versions, Each(2));
}

TEST_P(EngineTest, KeepsRequestsThroughAFlipAndMarksTheirTokens) {
  start();
  serve(1);
  runner_->open(false);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 50));
  wait_until([&] { return engine_->stats().requests == 1; });
  runner_->serve(2);
  runner_->open(true);
  const Completion completion = answer.get();
  const std::vector<Version>& versions = completion.choices.at(0)->versions;
  EXPECT_TRUE(std::is_sorted(versions.begin(), versions.end()));
  EXPECT_EQ(versions.back(), 2U);
  EXPECT_EQ(completion.choices[0]->finish, FinishReason::kLength);
}

TEST_P(EngineTest, AbortsRequestsAtAFlipWhereAsked) {
  start({.on_update = OnUpdate::kAbort});
  serve(1);
  runner_->open(false);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 500));
  wait_until([&] { return engine_->stats().requests == 1; });
  runner_->serve(2);
  runner_->open(true);
  const Completion completion = answer.get();
  EXPECT_EQ(completion.choices.at(0)->finish, FinishReason::kAbort);
  EXPECT_LT(completion.choices[0]->generated(), 500U);
  EXPECT_THAT(completion.choices[0]->versions, Each(1));
}

TEST_P(EngineTest, ACancelledRequestFreesItsPlace) {
  start({.blocks = 64});
  serve(1);
  runner_->open(false);
  absl::StatusOr<RequestId> id = RequestId{0};
  std::future<Completion> cancelled = ask(request_of({1, 2, 3}, 900), &id);
  wait_until([&] { return engine_->stats().requests == 1; });
  engine_->cancel(*id);
  runner_->open(true);
  wait_until([&] { return engine_->stats().cancelled == 1; });
  EXPECT_EQ(engine_->stats().running, 0U);
  EXPECT_EQ(engine_->stats().blocks_used, 0U);
  EXPECT_THROW(cancelled.get(), std::future_error) << "its callback is never called";
}

// A callback may hold a client's connection, whose server ends before the engine does.
TEST_P(EngineTest, KeepsNothingToCallOnceItIsStopped) {
  start();
  serve(1);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 16000));  // longer than this test
  std::future<absl::Status> asleep = sleep();
  wait_until([&] { return engine_->stats().running == 1; });
  engine_->stop();
  runner_ = nullptr;  // destroyed with its thread
  ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_THROW(answer.get(), std::future_error);
  ASSERT_EQ(asleep.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_THROW(asleep.get(), std::future_error);
}

TEST_P(EngineTest, RefusesMoreThanMayWait) {
  start({.limits = {.max_batch = 2, .max_step_tokens = 16}, .max_waiting = 1});
  serve(1);
  runner_->open(false);
  std::future<Completion> first = ask(request_of({1}, 5, 2)), second = ask(request_of({2}, 5));
  const auto refused = engine_->submit(request_of({3}, 5), [](Completion) {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  runner_->open(true);
  first.get();
  second.get();
  ask(request_of({3}, 5)).get();
  EXPECT_EQ(engine_->stats().rejected, 1U);
}

TEST_P(EngineTest, AFailedStepFailsItsRequestsAndNoLaterOnes) {
  start();
  serve(1);
  runner_->fail(true);
  EXPECT_THAT(ask(request_of({1}, 5)).get().status.message(), HasSubstr("the model broke"));
  runner_->fail(false);
  EXPECT_TRUE(ask(request_of({1}, 5)).get().status.ok());
  EXPECT_EQ(engine_->stats().blocks_used, 0U);
}

TEST_P(EngineTest, ARequestThatCannotBeComputedEndsNoOther) {
  start({.limits = {.max_batch = 8, .max_step_tokens = 8}, .blocks = 24});
  serve(1);
  runner_->fail_on(66);
  runner_->open(false);
  std::vector<std::future<Completion>> sound;
  for (std::int64_t first = 1; first <= 3; ++first) sound.push_back(ask(request_of({first, 2, 3}, 40, 2)));
  std::future<Completion> one = ask(request_of({5, 66}, 5)), other = ask(request_of({66}, 5, 2));
  for (std::int64_t first = 4; first <= 6; ++first) sound.push_back(ask(request_of({first, 2, 3}, 40, 2)));
  runner_->open(true);
  for (std::future<Completion>* broken : {&one, &other})
    EXPECT_THAT(broken->get().status.message(), HasSubstr("the model broke"));
  for (std::size_t i = 0; i < sound.size(); ++i) {
    const Completion completion = sound[i].get();
    ASSERT_TRUE(completion.status.ok()) << completion.status;
    for (const auto& choice : completion.choices)
      EXPECT_THAT(choice->completion(),
                  ElementsAreArray(expected_completion({static_cast<std::int64_t>(i) + 1, 2, 3}, choice->choice, 40)));
  }
  EXPECT_EQ(engine_->stats().blocks_used, 0U);
  EXPECT_TRUE(ask(request_of({1}, 5)).get().status.ok());
}

// The row that failed may lie after the end of its sequence.
TEST_P(EngineTest, AStepThatFailsBesideASequenceThatHasEndedEndsNoOther) {
  start();
  serve(1);
  const std::vector<std::int64_t> expected = expected_completion({7, 8}, 0, 30);
  CompletionRequest ends = request_of({7, 8}, 30);
  ends.stop_token_ids = {expected[5]};
  ASSERT_EQ(std::find(expected.begin(), expected.end(), expected[5]) - expected.begin(), 5);
  runner_->fail_behind(expected[5]);
  runner_->open(false);
  std::future<Completion> ended = ask(std::move(ends)), goes_on = ask(request_of({1, 2, 3}, 8));
  runner_->open(true);
  EXPECT_EQ(ended.get().choices.at(0)->finish, FinishReason::kStop);
  const Completion completion = goes_on.get();
  ASSERT_TRUE(completion.status.ok()) << completion.status;
  EXPECT_THAT(completion.choices.at(0)->completion(), ElementsAreArray(expected_completion({1, 2, 3}, 0, 8)));
}

TEST_P(EngineTest, AnswersWhatRunsAndWaitsWhenItsVersionIsServedNoMore) {
  start({.limits = {.max_batch = 1, .max_step_tokens = 16}});
  serve(1);
  runner_->open(false);
  std::future<Completion> runs = ask(request_of({1, 2, 3}, 900)), waits = ask(request_of({4}, 5));
  wait_until([&] { return engine_->stats().requests >= 1; });
  std::future<absl::Status> asleep = sleep();
  runner_->poison(absl::FailedPreconditionError("the copy was torn"));
  runner_->open(true);
  for (std::future<Completion>* answer : {&runs, &waits}) {
    ASSERT_EQ(answer->wait_for(std::chrono::seconds(20)), std::future_status::ready);
    const absl::Status status = answer->get().status;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("the copy was torn"));
  }
  EXPECT_TRUE(asleep.get().ok()) << "there is nothing left to wait for";
  EXPECT_TRUE(wake_up().get().ok());
  EXPECT_EQ(engine_->stats().blocks_used, 0U);
  serve(2);
  EXPECT_THAT(ask(request_of({1}, 5)).get().choices.at(0)->versions, Each(2));
}

TEST_P(EngineTest, AbortAllEndsRequestsWithWhatTheyHave) {
  start();
  serve(1);
  runner_->open(false);
  std::future<Completion> answer = ask(request_of({1, 2, 3}, 500, 3));
  wait_until([&] { return engine_->stats().requests == 1; });
  engine_->abort_all();
  runner_->open(true);
  const Completion completion = answer.get();
  ASSERT_EQ(completion.choices.size(), 3U);
  for (const auto& choice : completion.choices) EXPECT_EQ(choice->finish, FinishReason::kAbort);
}

TEST_P(EngineTest, StartsTheNextStepBeforeTheLastIsFinishedWhereTheRunnerCan) {
  start();
  serve(1);
  ask(request_of({1, 2, 3}, 40)).get();
  if (GetParam() == SimulatedRunner::Ahead::kYes)
    EXPECT_EQ(runner_->ran_ahead(), 39);  // all but the first: how many tokens there will be is known
  else
    EXPECT_EQ(runner_->ran_ahead(), 0);
}

TEST_P(EngineTest, ASequenceEndsWithItsStopTokenWhateverHasBeenStartedBehindIt) {
  start({.limits = {.max_batch = 4, .max_step_tokens = 16}, .blocks = 8});
  serve(1);
  std::vector<std::int64_t> expected = expected_completion({7, 8}, 0, 30);
  const std::int64_t end = expected[5];
  std::vector<std::future<Completion>> answers;
  for (int i = 0; i < 20; ++i) {
    CompletionRequest request = request_of({7, 8}, 30);
    request.stop_token_ids = {end};
    answers.push_back(ask(std::move(request)));
    answers.push_back(ask(request_of({i, 9}, 20)));
  }
  expected.erase(std::find(expected.begin(), expected.end(), end) + 1, expected.end());
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(answers[static_cast<std::size_t>(2 * i)].get().choices.at(0)->completion(), ElementsAreArray(expected));
    EXPECT_THAT(answers[static_cast<std::size_t>(2 * i + 1)].get().choices.at(0)->completion(),
                ElementsAreArray(expected_completion({i, 9}, 0, 20)));
  }
  EXPECT_EQ(engine_->stats().generated_tokens, 20 * (expected.size() + 20));
}

INSTANTIATE_TEST_SUITE_P(Runner, EngineTest,
                         ::testing::Values(SimulatedRunner::Ahead::kNo, SimulatedRunner::Ahead::kYes), name_of_ahead);

}  // namespace
}  // namespace bascule::ref
