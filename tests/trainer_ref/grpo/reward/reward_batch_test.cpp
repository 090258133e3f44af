#include <bascule/trainer_ref/grpo/reward/reward_batch.h>

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "trainer_ref/grpo/ports.h"
#include <bascule/trainer_ref/grpo/reward/reward_answer.h>

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using test::AnsweringPort;
using test::ClosedPort;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::SizeIs;

// Completions of one problem, in the form that rewards get.
class Completions {
 public:
  explicit Completions(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      rollouts_.emplace_back();
      rollouts_.back().text = text;
      rollouts_.back().finish_reason = "stop";
      rollouts_.back().token_ids = {1, 2};
    }
    for (const Rollout& rollout : rollouts_) scored_.push_back({.problem = &problem_, .rollout = &rollout});
  }
  operator std::span<const Scored>() const { return scored_; }  // NOLINT: reads as what it is

 private:
  const Problem problem_{.prompt = "2+2=", .answer = "4", .columns = {{"level", 3}}};
  std::vector<Rollout> rollouts_;
  std::vector<Scored> scored_;
};

std::string answer_with(std::uint64_t id, const nlohmann::json& rewards) {
  return nlohmann::json{{"id", id}, {"rewards", rewards}}.dump();
}

TEST(RewardBatch, ARequestHoldsWhatARewardNeeds) {
  const std::string request = reward_request(7, Completions({"4", "cut \xe2\x88"}));
  EXPECT_EQ(request.find('\n'), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(request);
  EXPECT_EQ(json["id"], 7);
  EXPECT_EQ(json["completions"][0], (nlohmann::json{{"prompt", "2+2="},
                                                    {"completion", "4"},
                                                    {"answer", "4"},
                                                    {"finish_reason", "stop"},
                                                    {"completion_tokens", 2},
                                                    {"columns", {{"level", 3}}}}));
  EXPECT_EQ(json["completions"][1]["completion"], "cut \ufffd") << "bytes that are not UTF-8";
}

TEST(RewardAnswer, HasNumbersNullsAndObjects) {
  const auto answer =
      read_reward_answer(R"({"id": 7, "rewards": [1, -0.5, null, {"reward": 2}, {"reward": null}, true]})", 7, 6);
  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(answer->rewards, ElementsAre(1, -0.5, IsNan(), 2, IsNan(), 1));
  EXPECT_EQ(answer->refused, 0);
}

// json.dumps() of Python writes these three, which are not JSON.
TEST(RewardAnswer, NanIsAnAbstentionAndInfinityIsRefusedForItsCompletion) {
  const auto answer = read_reward_answer(
      R"({"id": 7, "note": "NaN \" Infinity", "rewards": [NaN, 0.5, {"reward": NaN}, Infinity, -Infinity]})", 7, 5);
  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(answer->rewards, ElementsAre(IsNan(), 0.5, IsNan(), IsNan(), IsNan()));
  EXPECT_EQ(answer->refused, 2);
  EXPECT_THAT(answer->first_refused, HasSubstr("rewards[3] is \"Infinity\", neither a number from -1e6 to 1e6"));
}

TEST(RewardAnswer, WhatIsNoRewardIsRefusedForItsCompletionAlone) {
  const auto first_refused = [](const nlohmann::json& rewards) {
    const auto answer = read_reward_answer(answer_with(7, rewards), 7, 2);
    EXPECT_THAT(answer, IsOk());
    EXPECT_EQ(answer->refused, 1);
    return answer->first_refused;
  };
  EXPECT_THAT(first_refused({1, "2"}), HasSubstr("rewards[1] is \"2\", neither a number"));
  EXPECT_THAT(first_refused({1, 1e9}), HasSubstr("rewards[1] is 1000000000.0"));
  EXPECT_THAT(first_refused({nlohmann::json::array(), 2}), HasSubstr("rewards[0] is []"));
}

TEST(RewardAnswer, MayFollowATextOnItsLine) {
  const auto answer = read_reward_answer(R"(score: {"id": 7, "rewards": [1]})", 7, 1);
  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(answer->rewards, ElementsAre(1));
}

TEST(RewardAnswer, SaysWhatIsWrongWithIt) {
  const auto refused = [](const std::string& answer) {
    return std::string(read_reward_answer(answer, 7, 2).status().message());
  };
  EXPECT_THAT(refused("loading…"),
              AllOf(HasSubstr("not valid JSON"), HasSubstr("expected {\"id\": 7, \"rewards\": [2 numbers]}"),
                    HasSubstr("found: loading…")));
  EXPECT_THAT(refused("[1, 2]"), HasSubstr("the answer is not a JSON object"));
  EXPECT_THAT(refused(R"({"rewards": [1, 2]})"), HasSubstr("the answer has no id"));
  EXPECT_THAT(refused(answer_with(6, {1, 2})), HasSubstr("the answer has the id 6"));
  EXPECT_THAT(refused(R"({"id": 7})"), HasSubstr("no list \"rewards\""));
  EXPECT_THAT(refused(answer_with(7, {1, 2, 3})), HasSubstr("the answer has 3 rewards"));
  EXPECT_THAT(refused(std::string(10000, 'x')).size(), ::testing::Lt(600)) << "a long answer is not shown whole";
}

TEST(RewardAnswer, IsToldFromStrayLines) {
  for (const char* stray : {"", "loading the model", "[1, 2]", "7", "Traceback {", R"({"level": "info"})",
                            R"({"id": 6, "rewards": [1]})", R"({"id": 8})"})
    EXPECT_TRUE(is_stray_line(stray, 7)) << stray;
  for (const char* answer :
       {R"({"id": 7, "rewards": [1]})", R"({"id": 7, "error": "no"})", R"({"rewards": [1]})",
        R"({"id": 7, "rewards": [NaN]})", R"({"id": "7", "rewards": [1]})", R"(score {"id": 7, "rewards": [1]})"})
    EXPECT_FALSE(is_stray_line(answer, 7)) << answer;
}

// Programs in Python, in the test's own folder.
class ExecRewardTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Reward>> program(const std::string& text, absl::Duration timeout = absl::Seconds(60)) {
    const std::filesystem::path file = folder_.path() / "reward.py";
    std::ofstream(file) << "import json, os, sys, time\nfolder = " << folder_.path() << "\n" << text;
    return exec_reward("exec:reward.py", {"python3", file.string()},
                       {.timeout = timeout, .log = [this](std::string_view line) { log_.emplace_back(line); }});
  }
  const bascule::test::TempFolder folder_;
  std::vector<std::string> log_;
};

const char* const kLengths = R"(
for line in sys.stdin:
    batch = json.loads(line)
    rewards = [len(c["completion"]) for c in batch["completions"]]
    print(json.dumps({"id": batch["id"], "rewards": rewards}), flush=True)
)";

TEST_F(ExecRewardTest, OneProcessScoresEveryBatch) {
  auto reward = program(std::string("pid = os.getpid()\n") + R"(
for line in sys.stdin:
    batch = json.loads(line)
    print(json.dumps({"id": batch["id"], "rewards": [pid % 1000000 for _ in batch["completions"]]}), flush=True)
)");
  ASSERT_THAT(reward, IsOk());
  const auto first = (*reward)->score(Completions({"a", "b"})), second = (*reward)->score(Completions({"c"}));
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(*first, Each((*second)[0]));
  EXPECT_THAT((*reward)->score({}), IsOk());
}

TEST_F(ExecRewardTest, LargeBatchesComeBackWholeAndInOrder) {
  auto reward = program(kLengths);
  ASSERT_THAT(reward, IsOk());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 2500; ++i) texts.emplace_back(i, 'x');
  const auto scores = (*reward)->score(Completions(texts));
  ASSERT_THAT(scores, IsOk());
  ASSERT_EQ(scores->size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ((*scores)[i], static_cast<double>(i));
}

TEST_F(ExecRewardTest, AProgramThatDiesIsStartedAgainAndAskedTheSame) {
  auto reward = program(R"(
if not os.path.exists(folder + "/died"):
    open(folder + "/died", "w").close()
    sys.stdin.readline()
    sys.exit(3)
)" + std::string(kLengths));
  ASSERT_THAT(reward, IsOk());
  const auto scores = (*reward)->score(Completions({"abc"}));
  ASSERT_THAT(scores, IsOk());
  EXPECT_THAT(*scores, ElementsAre(3));
  EXPECT_THAT(log_, ElementsAre("reward exec:reward.py: it ended with exit status 3; trying again"));
}

TEST_F(ExecRewardTest, AProgramThatAlwaysDiesIsGivenUp) {
  auto reward = program(R"(
open(folder + "/starts", "a").write("x")
sys.exit("no model")
)");
  ASSERT_THAT(reward, IsOk());
  EXPECT_THAT((*reward)->score(Completions({"abc"})),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("exit status 1 (tried 3 times)")));
  EXPECT_EQ(std::filesystem::file_size(folder_.path() / "starts"), 3);
}

TEST_F(ExecRewardTest, AProgramThatIsTooLateIsStartedAgain) {
  auto reward = program(R"(
if not os.path.exists(folder + "/slept"):
    open(folder + "/slept", "w").close()
    time.sleep(1000)
)" + std::string(kLengths),
                        absl::Seconds(2));
  ASSERT_THAT(reward, IsOk());
  const auto scores = (*reward)->score(Completions({"abc"}));
  ASSERT_THAT(scores, IsOk());
  EXPECT_THAT(log_, ElementsAre(HasSubstr("no answer within 2s")));
}

TEST_F(ExecRewardTest, AMalformedAnswerIsAskedForAgainAndThenShown) {
  auto reward = program(R"(
for line in sys.stdin:
    open(folder + "/asked", "a").write("x")
    print(json.dumps({"id": json.loads(line)["id"], "rewards": "none"}), flush=True)
)");
  ASSERT_THAT(reward, IsOk());
  EXPECT_THAT((*reward)->score(Completions({"abc"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(R"(found: {"id": 1, "rewards": "none"})"), HasSubstr("(tried 3 times)"))));
  EXPECT_EQ(std::filesystem::file_size(folder_.path() / "asked"), 3);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("trying again"), HasSubstr("trying again")));
}

TEST_F(ExecRewardTest, LinesThatAreNoAnswersArePassedOverAndOneIsLogged) {
  auto reward = program(R"(
print("loading the model", flush=True)
for line in sys.stdin:
    batch = json.loads(line)
    print("a warning")
    answer = json.dumps({"id": batch["id"], "rewards": [len(c["completion"]) for c in batch["completions"]]})
    print(answer)
    print(answer, flush=True)
)");
  ASSERT_THAT(reward, IsOk());
  for (const std::size_t length : {3, 2, 1}) {
    const auto scores = (*reward)->score(Completions({std::string(length, 'x')}));
    ASSERT_THAT(scores, IsOk());
    EXPECT_THAT(*scores, ElementsAre(static_cast<double>(length)));
  }
  EXPECT_THAT(log_, ElementsAre(HasSubstr("no answer: loading the model (later ones are not logged")));
}

TEST_F(ExecRewardTest, AProgramThatOnlyPrintsRubbishEndsTheRun) {
  auto reward = program(R"(
for i in range(100000): print("rubbish", i, flush=True)
time.sleep(1000)
)");
  ASSERT_THAT(reward, IsOk());
  EXPECT_THAT((*reward)->score(Completions({"abc"})),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("it printed 1000 lines and no answer"),
                                                                 HasSubstr("rubbish 998 | rubbish 999"))));
}

TEST_F(ExecRewardTest, AProgramThatFailsIsReportedWithItsLastLines) {
  auto reward = program("print('no model here')\nsys.exit(2)\n");
  ASSERT_THAT(reward, IsOk());
  EXPECT_THAT((*reward)->score(Completions({"abc"})),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("exit status 2"), HasSubstr("no answers: no model here (tried 3 times)"))));
}

TEST_F(ExecRewardTest, OneThatHasNoUsableRewardForLongEndsTheRun) {
  auto reward = program(R"(
for n, line in enumerate(sys.stdin):
    rewards = [float("inf")] if n != 3 else [float("nan")]
    print(json.dumps({"id": json.loads(line)["id"], "rewards": rewards}), flush=True)
)");
  ASSERT_THAT(reward, IsOk());
  for (int i = 0; i < 13; ++i) {
    const auto scores = (*reward)->score(Completions({"abc"}));
    ASSERT_THAT(scores, IsOk());
    EXPECT_THAT(*scores, ElementsAre(IsNan())) << "an abstention is a usable answer";
  }
  EXPECT_THAT((*reward)->score(Completions({"abc"})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the last 10 answers have no reward")));
  EXPECT_THAT(log_, AllOf(SizeIs(13), Each(HasSubstr("1 of 1 completions get no reward from it: rewards[0] is "))));
}

TEST(ExampleReward, ScoresDigitByDigit) {
  const auto reward = exec_reward("exec:digits.py", {BASCULE_EXAMPLES "/rewards/digits.py"}, {});
  ASSERT_THAT(reward, IsOk());
  const auto scores = (*reward)->score(Completions({"4", " 4\n", "5", "", "412"}));
  ASSERT_THAT(scores, IsOk());
  EXPECT_THAT(*scores, ElementsAre(1, 1, 0, 0, ::testing::DoubleNear(0.8, 1e-9)));
  const Problem word{.prompt = "?", .answer = "four"};
  const Rollout rollout;
  const auto none = (*reward)->score(std::vector<Scored>{{&word, &rollout}});
  ASSERT_THAT(none, IsOk());
  EXPECT_TRUE(std::isnan((*none)[0]));
}

TEST(HttpReward, PostsTheRequestAndReadsTheAnswer) {
  const AnsweringPort server([](const std::string& body) {
    const nlohmann::json request = nlohmann::json::parse(body);
    nlohmann::json rewards;
    for (const nlohmann::json& completion : request["completions"])
      rewards.push_back(completion["completion"] == completion["answer"] ? 1 : 0);
    return AnsweringPort::Answer{.status = 200, .body = answer_with(request["id"], rewards)};
  });
  {
    const auto reward = http_reward("http", server.url + "/score", {});
    for (int i = 0; i < 2; ++i) {
      const auto scores = reward->score(Completions({"4", "5"}));
      ASSERT_THAT(scores, IsOk());
      EXPECT_THAT(*scores, ElementsAre(1, 0));
    }
  }
}

TEST(HttpReward, AsksAgainWhereTheServerIsBusy) {
  std::atomic<int> asked = 0;
  const AnsweringPort server([&](const std::string&) {
    return ++asked < 3 ? AnsweringPort::Answer{.status = 503, .body = "warming up"}
                       : AnsweringPort::Answer{.status = 200, .body = answer_with(1, {0.5})};
  });
  std::vector<std::string> log;
  const auto reward = http_reward("judge", server.url, {.log = [&](std::string_view line) { log.emplace_back(line); }});
  const auto scores = reward->score(Completions({"4"}));
  ASSERT_THAT(scores, IsOk());
  EXPECT_THAT(*scores, ElementsAre(0.5));
  EXPECT_THAT(log, ElementsAre(HasSubstr("reward judge: expected status 200, found 503: warming up; trying again"),
                               HasSubstr("found 503")));
}

TEST(HttpReward, GivesUpAfterThreeTriesOrAtOnce) {
  const ClosedPort nobody;
  EXPECT_THAT(http_reward("judge", nobody.url, {})->score(Completions({"4"})),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("(tried 3 times)")));
  std::atomic<int> asked = 0;
  const AnsweringPort refuses([&](const std::string&) {
    ++asked;
    return AnsweringPort::Answer{.status = 404, .body = "no such path"};
  });
  EXPECT_THAT(http_reward("judge", refuses.url, {})->score(Completions({"4"})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found 404: no such path")));
  EXPECT_EQ(asked, 1);
}

TEST(RewardBatch, AProgramOrServerThatIsAwaitedIsLeftWithinASecondOfBeingTold) {
  const test::SilentPort silent;
  const RewardOptions options{.timeout = absl::Hours(1), .stopped = [] { return true; }};
  auto program = exec_reward("p", {"sleep", "1000"}, options);
  ASSERT_THAT(program, IsOk());
  const auto server = http_reward("s", silent.url, options);
  for (Reward* const reward : {program->get(), server.get()}) {
    const auto told = std::chrono::steady_clock::now();
    EXPECT_THAT(reward->score(Completions({"4"})), StatusIs(absl::StatusCode::kCancelled, HasSubstr("")));
    EXPECT_LT(std::chrono::steady_clock::now() - told, std::chrono::seconds(1));
  }
}

}  // namespace
}  // namespace bascule::ref
