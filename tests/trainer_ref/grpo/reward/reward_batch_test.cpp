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

TEST(RewardBatch, ReadsNumbersNullsAndObjects) {
  const auto rewards =
      read_reward_answer(R"({"id": 7, "rewards": [1, -0.5, null, {"reward": 2}, {"reward": null}, true]})", 7, 6);
  ASSERT_THAT(rewards, IsOk());
  EXPECT_EQ((*rewards)[0], 1);
  EXPECT_EQ((*rewards)[1], -0.5);
  EXPECT_TRUE(std::isnan((*rewards)[2]));
  EXPECT_EQ((*rewards)[3], 2);
  EXPECT_TRUE(std::isnan((*rewards)[4]));
  EXPECT_EQ((*rewards)[5], 1);
}

TEST(RewardBatch, SaysWhatIsWrongWithAnAnswer) {
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
  EXPECT_THAT(refused(answer_with(7, {1, "2"})), HasSubstr("rewards[1] is \"2\", neither a number"));
  EXPECT_THAT(refused(answer_with(7, {1, 1e9})), HasSubstr("rewards[1] is 1000000000.0"));
  EXPECT_THAT(refused(answer_with(7, {nlohmann::json::array(), 2})), HasSubstr("rewards[0] is []"));
  EXPECT_THAT(refused(std::string(10000, 'x')).size(), ::testing::Lt(600)) << "a long answer is not shown whole";
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

TEST_F(ExecRewardTest, AMalformedAnswerIsShown) {
  auto reward = program("print('loading the model', flush=True)\n" + std::string(kLengths));
  ASSERT_THAT(reward, IsOk());
  EXPECT_THAT((*reward)->score(Completions({"abc"})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found: loading the model")));
  EXPECT_TRUE(log_.empty()) << "it would log that again";
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
