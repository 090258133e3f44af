#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>

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

TEST(EnginePool, GivesUpOnEnginesThatAreNotThere) {
  const ClosedPort nobody, nobody_else;
  EnginePool pool({.urls = {nobody.url, nobody_else.url}, .batch = 2, .request_timeout = absl::Milliseconds(100)});
  const auto generations = pool.generate(std::vector<RolloutRequest>(3, RolloutRequest{.prompt = {1}}));
  EXPECT_TRUE(absl::IsUnavailable(generations.status())) << generations.status();
  EXPECT_THAT(generations.status().message(), HasSubstr("none of 3 requests was answered by 2 engines"));
  EXPECT_THAT(pool.wait_until_serving(1, absl::Milliseconds(50)).message(), HasSubstr(nobody.url));
}

TEST(EnginePool, NamesTheEngineThatDoesNotGoToSleepOrWakeUp) {
  const ClosedPort nobody;
  EnginePool pool({.urls = {nobody.url}});
  EXPECT_TRUE(absl::IsUnavailable(pool.sleep()));
  EXPECT_THAT(pool.sleep().message(), HasSubstr(nobody.url + " did not go to sleep: "));
  EXPECT_THAT(pool.wake_up().message(), HasSubstr(nobody.url + " did not wake up: "));
}

TEST(EnginePool, AsksEachEngineAndNamesTheOneThatDoesNotAnswer) {
  std::atomic<int> asked = 0;
  const AnsweringPort full_at_first([&](const std::string&) {
    return ++asked == 1 ? AnsweringPort::Answer{.status = 429, .body = "{}"} : AnsweringPort::Answer{.body = kOneToken};
  });
  const AnsweringPort other([&](const std::string&) { return AnsweringPort::Answer{.body = kOneToken}; });
  const auto answers = EnginePool({.urls = {full_at_first.url, other.url}}).ask_each({.prompt = {1}});
  ASSERT_TRUE(answers.ok()) << answers.status();
  ASSERT_EQ(answers->size(), 2);
  for (std::size_t engine : {0, 1}) {
    EXPECT_EQ((*answers)[engine].engine, engine);
    EXPECT_EQ((*answers)[engine].rollouts.size(), 1);
  }
  EXPECT_EQ(asked, 2);
  const ClosedPort nobody;
  const auto missing = EnginePool({.urls = {other.url, nobody.url}}).ask_each({.prompt = {1}});
  EXPECT_TRUE(absl::IsUnavailable(missing.status()));
  EXPECT_THAT(missing.status().message(), HasSubstr("engine " + nobody.url + ": "));
}

// The engine dies with a request in flight, and comes back at another port.
TEST(EnginePool, FollowsAnEngineThatIsStartedAgainElsewhere) {
  const std::map<std::string, std::string> well{{"/health", R"({"attached": true, "epoch": 7, "worker": "a"})"}};
  const AnsweringPort after([](const std::string&) { return AnsweringPort::Answer{.body = kOneToken}; }, well);
  const ClosedPort before;
  std::atomic<int> asked = 0;
  std::atomic<bool> is_back = false;
  EnginePool pool({.urls = {before.url},
                   .url_of =
                       [&](std::size_t) {
                         ++asked;
                         return is_back ? after.url : std::string();
                       },
                   .batch = 1});
  std::jthread starter([&] {
    while (asked < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    is_back = true;
  });
  const auto answers = pool.generate({RolloutRequest{.prompt = {1}}});
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(answers->front().rollouts.size(), 1);
  EXPECT_EQ(pool.urls(), std::vector<std::string>{after.url});
}

// The engines die one after the other, each with the request in flight, as when a machine kills them all.
TEST(EnginePool, ARequestThatDiedWithItsEngineWaitsForOneThatIsStartedAgain) {
  const std::map<std::string, std::string> well{{"/health", R"({"attached": true})"}};
  const BreakingPort dying, dying_too;
  const AnsweringPort after([](const std::string&) { return AnsweringPort::Answer{.body = kOneToken}; }, well);
  std::atomic<bool> is_back = false;
  EnginePool pool({.urls = {dying.url, dying_too.url},
                   .url_of =
                       [&](std::size_t engine) {
                         if (engine == 0 && is_back) return after.url;
                         return std::string();
                       },
                   .batch = 1,
                   .request_timeout = absl::Milliseconds(200)});
  std::jthread starter([&] {  // later than a call would wait for engines that are not restarted
    while (dying.broken() + dying_too.broken() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    is_back = true;
  });
  const auto answers = pool.generate(std::vector<RolloutRequest>(2, RolloutRequest{.prompt = {1}}));
  ASSERT_TRUE(answers.ok()) << answers.status();
  for (const Generation& answer : *answers) EXPECT_EQ(answer.rollouts.size(), 1);
}

TEST(EnginePool, ARequestThatNobodyTookIsAskedOfTheEngineThatLives) {
  const ClosedPort nobody, nobody_else;
  const AnsweringPort engine(
      [](const std::string&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others refuse faster
        return AnsweringPort::Answer{.body = kOneToken};
      },
      {{"/health", "{}"}});
  EnginePool pool({.urls = {nobody.url, engine.url, nobody_else.url}, .batch = 1});
  const auto answers = pool.generate(std::vector<RolloutRequest>(8, RolloutRequest{.prompt = {1}}));
  ASSERT_TRUE(answers.ok()) << answers.status();
  for (const Generation& answer : *answers) EXPECT_EQ(answer.rollouts.size(), 1);
}

// The other engine is dead for good: only the one that lost the request can answer it.
TEST(EnginePool, ALostRequestGoesBackToTheOnlyEngineThatIsUp) {
  const ClosedPort nobody;
  std::atomic<int> asked = 0;
  const AnsweringPort engine(
      [&](const std::string&) {
        return ++asked == 1 ? AnsweringPort::Answer{.status = 500, .body = "ill"}
                            : AnsweringPort::Answer{.body = kOneToken};
      },
      {{"/health", "{}"}});
  EnginePool pool({.urls = {engine.url, nobody.url}, .batch = 1});
  const auto answers = pool.generate({RolloutRequest{.prompt = {1}}});
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(answers->front().rollouts.size(), 1);
}

TEST(EnginePool, AnEngineThatIsStartedAgainIsToldToSleepWhenItIsBack) {
  const AnsweringPort after([](const std::string&) { return AnsweringPort::Answer{.body = "{}"}; });
  const ClosedPort before;
  std::atomic<int> asked = 0;
  EnginePool pool({.urls = {before.url}, .url_of = [&](std::size_t) { return ++asked < 3 ? "" : after.url; }});
  EXPECT_TRUE(pool.sleep().ok());
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
  EnginePool pool({.urls = {engine.url}, .batch = 1, .request_timeout = absl::Seconds(1)});
  auto step = std::async(std::launch::async,
                         [&] { return pool.generate(std::vector<RolloutRequest>(6, RolloutRequest{.prompt = {1}})); });
  asked.get_future().wait();
  const auto evaluation = pool.generate({RolloutRequest{.prompt = {2}}});
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_TRUE(step.get().ok());
}

TEST(EnginePool, GivesItsEnginesTheirKey) {
  const AnsweringPort engine(
      [](const std::string&) { return AnsweringPort::Answer{.body = kOneToken}; },
      {{"/v1/models", R"({"data": [{"max_model_len": 64, "max_completions": 8, "max_batch": 8}]})"}}, "sesame");
  EnginePool stranger({.urls = {engine.url}}), pool({.urls = {engine.url}, .api_key = "sesame"});
  EXPECT_TRUE(absl::IsUnavailable(stranger.limits().status()));
  EXPECT_THAT(stranger.limits().status().message(), HasSubstr("BASCULE_API_KEY"));
  EXPECT_TRUE(pool.limits().ok());
  EXPECT_TRUE(pool.sleep().ok());
  EXPECT_TRUE(pool.generate({RolloutRequest{.prompt = {1}}}).ok());
}

TEST(EnginePool, PausesBeforeItAsksAnEngineThatIsFullAgain) {
  std::atomic<int> asked = 0;
  const auto full_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(350);
  const AnsweringPort engine([&](const std::string&) {
    ++asked;
    const bool full = std::chrono::steady_clock::now() < full_until;
    return full ? AnsweringPort::Answer{.status = 429, .body = "full"} : AnsweringPort::Answer{.body = kOneToken};
  });
  EnginePool pool({.urls = {engine.url}, .batch = 1});
  EXPECT_TRUE(pool.generate({RolloutRequest{.prompt = {1}}}).ok());
  EXPECT_LE(asked, 5) << "one per tenth of a second";
}

TEST(EnginePool, AnEngineOfAnotherTrainerIsRefusedByName) {
  const auto port = [](const std::string& health) {
    return std::make_unique<AnsweringPort>([](const std::string&) { return AnsweringPort::Answer{}; },
                                           std::map<std::string, std::string>{{"/health", health}});
  };
  const auto ours = port(R"({"attached": true, "epoch": 7, "worker": "a"})"),
             same = port(R"({"attached": true, "epoch": 7, "worker": "a"})"),
             other = port(R"({"attached": true, "epoch": 8, "worker": "b"})"),
             alone = port(R"({"attached": false, "epoch": 0, "worker": "c"})");
  const auto said = [&](const AnsweringPort& first, const AnsweringPort& second) {
    EnginePool pool({.urls = {first.url, second.url}});
    return std::string(pool.wait_until_serving(7, absl::Milliseconds(200)).message());
  };
  EXPECT_THAT(said(*ours, *other), HasSubstr(other->url + " is connected to another trainer: it serves epoch 8"));
  EXPECT_THAT(said(*ours, *same), HasSubstr("are one, worker a"));
  EXPECT_THAT(said(*ours, *alone), HasSubstr(alone->url + " has joined no sender"));
}

TEST(EnginePool, LimitsAreThoseOfTheSmallestEngine) {
  const auto port = [](const std::string& models) {
    return std::make_unique<AnsweringPort>([](const std::string&) { return AnsweringPort::Answer{}; },
                                           std::map<std::string, std::string>{{"/v1/models", models}});
  };
  const auto one = port(R"({"data": [{"id": "m", "max_model_len": 128, "max_completions": 64, "max_batch": 64}]})"),
             other = port(R"({"data": [{"id": "m", "max_model_len": 256, "max_completions": 16, "max_batch": 96}]})"),
             strange = port(R"({"data": [{"id": "m"}]})");
  const auto limits = EnginePool({.urls = {one->url, other->url}}).limits();
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->max_model_len, 128);
  EXPECT_EQ(limits->max_completions, 16);
  EXPECT_EQ(limits->max_batch, 64);
  EXPECT_THAT(EnginePool({.urls = {one->url, strange->url}}).limits().status().message(), HasSubstr(strange->url));
}

TEST(EnginePool, ARequestThatIsRefusedIsLostAlone) {
  const AnsweringPort engine([](const std::string& body) {
    return body.find("[66]") != std::string::npos
               ? AnsweringPort::Answer{.status = 400, .body = R"({"error": {"message": "too long"}})"}
               : AnsweringPort::Answer{.body = kOneToken};
  });
  std::string log;
  std::mutex mutex;
  EnginePool pool({.urls = {engine.url}, .batch = 1, .log = [&](std::string_view line) {
                     const std::lock_guard lock(mutex);
                     log += line;
                   }});
  const auto answers = pool.generate({{.prompt = {1}}, {.prompt = {66}}, {.prompt = {2}}});
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ((*answers)[0].rollouts.size(), 1);
  EXPECT_TRUE((*answers)[1].rollouts.empty());
  EXPECT_EQ((*answers)[2].request, 2);
  EXPECT_THAT(log, HasSubstr("refused a request, which is lost: HTTP 400: too long"));
}

TEST(EnginePool, StopsWaitingWithinASecondOfBeingTold) {
  const SilentPort silent;
  std::atomic<bool> stopped = false;
  EnginePool pool({.urls = {silent.url}, .request_timeout = absl::Hours(1), .stopped = [&] { return stopped.load(); }});
  std::chrono::steady_clock::time_point told;
  std::jthread teller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    told = std::chrono::steady_clock::now();
    stopped = true;
  });
  EXPECT_TRUE(absl::IsCancelled(pool.generate({RolloutRequest{.prompt = {1}}}).status()));
  EXPECT_LT(std::chrono::steady_clock::now() - told, std::chrono::seconds(1));
}

TEST(EnginePool, CancelEndsWhatWaits) {
  const SilentPort silent;
  EnginePool pool({.urls = {silent.url}, .request_timeout = absl::Hours(1)});
  std::jthread canceller([&] { pool.cancel(); });
  EXPECT_TRUE(absl::IsCancelled(pool.generate({RolloutRequest{.prompt = {1}}}).status()));
}

// Answers wait until four requests are in flight at once; a fifth would be seen.
TEST(EnginePool, AsksAnEngineForTwoOfItsBatchesAtATime) {
  std::mutex mutex;
  std::condition_variable changed;
  int under_way = 0, most = 0;
  const AnsweringPort engine(
      [&](const std::string&) {
        std::unique_lock lock(mutex);
        most = std::max(most, ++under_way);
        changed.notify_all();
        changed.wait_for(lock, std::chrono::seconds(10), [&] { return most >= 4; });
        --under_way;
        return AnsweringPort::Answer{.body = kOneToken};
      },
      {{"/v1/models", R"({"data": [{"max_model_len": 64, "max_completions": 2, "max_batch": 2}]})"}});
  EnginePool pool({.urls = {engine.url}, .batch = 1});
  ASSERT_TRUE(pool.limits().ok());
  EXPECT_TRUE(pool.generate(std::vector<RolloutRequest>(12, RolloutRequest{.prompt = {1}})).ok());
  EXPECT_EQ(most, 4);
}

}  // namespace
}  // namespace bascule::ref
