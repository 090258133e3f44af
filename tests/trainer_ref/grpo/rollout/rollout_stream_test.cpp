#include <bascule/trainer_ref/grpo/rollout/rollout_stream.h>

#include <gmock/gmock.h>

#include <atomic>
#include <future>

#include "trainer_ref/grpo/ports.h"

namespace bascule::ref {
namespace {

using test::AnsweringPort;
using test::BreakingPort;
using test::ClosedPort;
using test::kOneToken;
using test::SilentPort;
using ::testing::HasSubstr;

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

TEST(RolloutStream, PassesOnWhatTheEnginesSaid) {
  const ClosedPort nobody;
  EnginePool pool({.urls = {nobody.url}, .request_timeout = absl::Milliseconds(50)});
  RolloutStream stream(pool, {.first_step = 1, .last_step = 2},
                       [](std::int64_t) { return std::vector<RolloutRequest>{RolloutRequest{.prompt = {1}}}; });
  stream.published();
  EXPECT_TRUE(absl::IsUnavailable(stream.next().status()));
}

// Of four requested completions two are cut short, and of the two requested again, one.
TEST(RolloutStream, AsksAgainForWhatWasCutShort) {
  std::mutex mutex;
  std::vector<nlohmann::json> asked;
  const AnsweringPort engine([&](const std::string& body) {
    const std::lock_guard lock(mutex);
    asked.push_back(nlohmann::json::parse(body));
    const int n = asked.back()["n"], cut = n / 2;
    nlohmann::json choices = nlohmann::json::array();
    for (int i = 0; i < n; ++i)
      choices.push_back({{"token_ids", {i}},
                         {"logprobs", {{"token_logprobs", {-1}}}},
                         {"epochs", {1}},
                         {"versions", {1}},
                         {"finish_reason", i < cut ? "abort" : "stop"}});
    return AnsweringPort::Answer{.body = nlohmann::json{{"choices", choices}}.dump()};
  });
  EnginePool pool({.urls = {engine.url}, .batch = 1});
  RolloutStream stream(pool, {.first_step = 1, .last_step = 1}, [](std::int64_t) {
    return std::vector<RolloutRequest>{{.prompt = {1}, .completions = 1, .seed = 3},
                                       {.prompt = {2}, .completions = 4, .seed = 5}};
  });
  stream.published();
  const auto step = stream.next();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->requests.size(), 2);
  std::vector<std::size_t> completions(2);
  for (const Generation& generation : step->generations)
    completions.at(generation.request) += generation.rollouts.size();
  EXPECT_EQ(completions, (std::vector<std::size_t>{1, 4}));
  ASSERT_EQ(asked.size(), 4);
  EXPECT_EQ(asked[2]["n"], 2);
  EXPECT_EQ(asked[2]["prompt"], (nlohmann::json{2}));
  EXPECT_NE(asked[2]["seed"], asked[1]["seed"]) << "the same seed would draw the same";
  EXPECT_EQ(asked[3]["n"], 1);
}

TEST(RolloutStream, AsksAheadAsFarAsStalenessAllows) {
  const ClosedPort nobody;
  EnginePool pool({.urls = {nobody.url}, .request_timeout = absl::Hours(1)});
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::int64_t> asked;
  // An empty plan is answered at once: this test checks only which steps are requested, and when.
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
  EXPECT_EQ(wait_for(3), (std::vector<std::int64_t>{1, 2, 3})) << "one version is out: steps 2 and 3 may use it";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream.next().ok());
  stream.published();
  EXPECT_EQ(wait_for(4).back(), 4);
}

// The engine answers step 1's last request only after it has got one of step 2.
TEST(RolloutStream, AStepDoesNotWaitForTheLastCompletionOfTheOneBefore) {
  std::promise<void> second_step;
  std::atomic<bool> came = false, at_once = false;
  const AnsweringPort engine([&](const std::string& body) {
    const std::int64_t prompt = nlohmann::json::parse(body)["prompt"][0];
    if (prompt == 20 && !came.exchange(true)) second_step.set_value();
    if (prompt == 11)
      at_once = second_step.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    return AnsweringPort::Answer{.body = kOneToken};
  });
  EnginePool pool({.urls = {engine.url}, .batch = 1});
  RolloutStream stream(pool, {.first_step = 1, .last_step = 2, .max_staleness = 1}, [](std::int64_t step) {
    return std::vector<RolloutRequest>{{.prompt = {10 * step}}, {.prompt = {10 * step + 1}}};
  });
  stream.published();
  EXPECT_TRUE(stream.next().ok());
  EXPECT_TRUE(at_once);
  EXPECT_TRUE(stream.next().ok());
}

// Steps that may be requested wait until engines have room: a run's requests are not all made at once.
TEST(RolloutStream, AsksNoFurtherThanTheEnginesHavePlaces) {
  std::atomic<std::int64_t> planned = 0;
  const SilentPort silent;
  EnginePool pool({.urls = {silent.url}, .batch = 2, .request_timeout = absl::Hours(1)});
  RolloutStream stream(pool, {.first_step = 1, .last_step = 99, .max_staleness = 99}, [&](std::int64_t step) {
    planned = step;
    return std::vector<RolloutRequest>{{.prompt = {1}}, {.prompt = {2}}};
  });
  stream.published();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (planned < 3 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(planned, 3) << "two steps are in flight, and the third waits";
}

}  // namespace
}  // namespace bascule::ref
