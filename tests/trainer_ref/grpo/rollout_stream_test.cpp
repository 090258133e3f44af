#include <bascule/trainer_ref/grpo/rollout_stream.h>

#include <gmock/gmock.h>

#include <atomic>
#include <future>

#include "ports.h"

namespace bascule::ref {
namespace {

using test::AnsweringPort;
using test::ClosedPort;
using test::SilentPort;
using ::testing::HasSubstr;

const char* const kOneToken =
    R"({"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [-1]}, "versions": [1]}]})";

TEST(Schedule, CountsTheVersionsBeforeAStep) {
  const Schedule every{.first_step = 1, .last_step = 10, .sync_every = 1};
  EXPECT_EQ(every.published_before(1), 1);
  EXPECT_EQ(every.published_before(7), 7);
  const Schedule third{.first_step = 1, .last_step = 10, .sync_every = 3};
  EXPECT_EQ(third.published_before(3), 1) << "a version follows step 3";
  EXPECT_EQ(third.published_before(4), 2);
  EXPECT_EQ(third.published_before(7), 3);
  const Schedule resumed{.first_step = 6, .last_step = 10, .sync_every = 3};
  EXPECT_EQ(resumed.published_before(6), 1) << "a resumed run publishes what it read";
  EXPECT_EQ(resumed.published_before(7), 2);
}

TEST(EnginePool, GivesUpOnEnginesThatAreNotThere) {
  const ClosedPort nobody, nobody_else;
  EnginePool pool(
      {.urls = {nobody.url, nobody_else.url}, .requests_per_engine = 2, .request_timeout = absl::Milliseconds(100)});
  const auto generations = pool.generate(std::vector<RolloutRequest>(3, RolloutRequest{.prompt = {1}}));
  EXPECT_TRUE(absl::IsUnavailable(generations.status())) << generations.status();
  EXPECT_THAT(generations.status().message(), HasSubstr("none of 3 requests was answered by 2 engines"));
  EXPECT_THAT(pool.wait_until_serving(absl::Milliseconds(50)).message(), HasSubstr(nobody.url));
}

TEST(EnginePool, NamesTheEngineThatDoesNotGoToSleepOrWakeUp) {
  const ClosedPort nobody;
  EnginePool pool({.urls = {nobody.url}});
  EXPECT_TRUE(absl::IsUnavailable(pool.sleep()));
  EXPECT_THAT(pool.sleep().message(), HasSubstr(nobody.url + " did not go to sleep: "));
  EXPECT_THAT(pool.wake_up().message(), HasSubstr(nobody.url + " did not wake up: "));
}

TEST(EnginePool, WaitsAsLongAsEnginesAnswerWhoeverAsked) {
  std::promise<void> asked;
  std::once_flag once;
  const AnsweringPort engine([&](const std::string&) {
    std::call_once(once, [&] { asked.set_value(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return AnsweringPort::Answer{.body = kOneToken};
  });
  // Six answers before its own take longer than the two seconds that a call waits for an answer.
  EnginePool pool({.urls = {engine.url}, .requests_per_engine = 1, .request_timeout = absl::Seconds(1)});
  auto step = std::async(std::launch::async,
                         [&] { return pool.generate(std::vector<RolloutRequest>(6, RolloutRequest{.prompt = {1}})); });
  asked.get_future().wait();
  const auto evaluation = pool.generate({RolloutRequest{.prompt = {2}}});
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_TRUE(step.get().ok());
}

TEST(EnginePool, PausesBeforeItAsksAnEngineThatIsFullAgain) {
  std::atomic<int> asked = 0;
  const auto full_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(350);
  const AnsweringPort engine([&](const std::string&) {
    ++asked;
    const bool full = std::chrono::steady_clock::now() < full_until;
    return full ? AnsweringPort::Answer{.status = 429, .body = "full"} : AnsweringPort::Answer{.body = kOneToken};
  });
  EnginePool pool({.urls = {engine.url}, .requests_per_engine = 1});
  EXPECT_TRUE(pool.generate({RolloutRequest{.prompt = {1}}}).ok());
  EXPECT_LE(asked, 5) << "a tenth of a second between them";
}

TEST(EnginePool, CancelEndsWhatWaits) {
  const SilentPort silent;
  EnginePool pool({.urls = {silent.url}, .request_timeout = absl::Hours(1)});
  std::jthread canceller([&] { pool.cancel(); });
  EXPECT_TRUE(absl::IsCancelled(pool.generate({RolloutRequest{.prompt = {1}}}).status()));
}

TEST(RolloutStream, PassesOnWhatTheEnginesSaid) {
  const ClosedPort nobody;
  EnginePool pool({.urls = {nobody.url}, .request_timeout = absl::Milliseconds(50)});
  RolloutStream stream(pool, {.first_step = 1, .last_step = 2},
                       [](std::int64_t) { return std::vector<RolloutRequest>{RolloutRequest{.prompt = {1}}}; });
  stream.published();
  EXPECT_TRUE(absl::IsUnavailable(stream.next().status()));
}

TEST(RolloutStream, AsksAheadAsFarAsStalenessAllows) {
  const ClosedPort nobody;
  EnginePool pool({.urls = {nobody.url}, .request_timeout = absl::Hours(1)});
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::int64_t> asked;
  // A plan of no requests is answered at once: what is asked, and when, is all that is looked at here.
  RolloutStream stream(pool, {.first_step = 1, .last_step = 9, .max_staleness = 2}, [&](std::int64_t step) {
    const std::lock_guard lock(mutex);
    asked.push_back(step);
    changed.notify_all();
    return std::vector<RolloutRequest>();
  });
  const auto wait_for = [&](std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return asked.size() >= count; });
    return asked;
  };
  stream.published();
  EXPECT_EQ(wait_for(3), (std::vector<std::int64_t>{1, 2, 3})) << "one version is out: steps 2 and 3 may be behind it";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream.next().ok());
  stream.published();
  EXPECT_EQ(wait_for(4).back(), 4);
}

}  // namespace
}  // namespace bascule::ref
