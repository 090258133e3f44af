// The steps of bascule-train, by its metrics and its page: which overlap, where their time goes, and what they learn
// from.
#include <algorithm>
#include <csignal>
#include <thread>

#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

// Two of six requests are in flight at a time; the next step's follow while one of a step is left. An answer may come
// before the stream requests more, so not every step must overlap (rollout_stream_test.cpp waits for it).
TEST_F(Train, StepsOverlapAsFarAsTheirStalenessAllows) {
  Program only = engine("engine-0", "0", {"--max-batch", "8"});
  Program train = trainer(
      url_of(only), "out",
      {"--steps", "9", "--prompts-per-step", "6", "--group-size", "8", "--max-staleness", "7", "--eval-every", "0"});
  ASSERT_EQ(train.wait(90s), 0) << train.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 10);
  const auto time = [](const nlohmann::json& line, const char* end) {
    std::vector<double> times;
    for (const nlohmann::json& span : line["engines"]) times.push_back(span[end]);
    return end == std::string("begin") ? *std::min_element(times.begin(), times.end())
                                       : *std::max_element(times.begin(), times.end());
  };
  int overlaps = 0;
  for (std::size_t i = 3; i < 9; ++i) overlaps += time(lines[i], "begin") < time(lines[i - 1], "end") ? 1 : 0;
  EXPECT_GT(overlaps, 0);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_LE(lines[i]["lag"]["max"], 7) << i;
    EXPECT_EQ(lines[i]["dropped"], 0) << i;
    std::size_t completions = 0;
    for (const nlohmann::json& count : lines[i]["lag"]["completions"]) completions += count.get<std::size_t>();
    EXPECT_EQ(completions, 48) << i;
  }
}

TEST_F(Train, ShowsItselfWhileItRunsAndSaysWhereItsTimeGoes) {
  Program only = engine("engine-0");
  Program train = trainer(url_of(only), "out",
                          {"--steps", "1000", "--prompts-per-step", "4", "--group-size", "4", "--metrics",
                           "127.0.0.1:0", "--lr-schedule", "cosine"});
  const std::string words = "metrics at ";
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 3 || !train.running(); }, 90s)) << train.output();
  const std::string output = train.output();
  const std::size_t begin = output.find(words) + words.size();
  const std::string url = output.substr(begin, output.find('\n', begin) - begin);
  ref::HttpClient client;
  const absl::StatusOr<ref::HttpResponse> page = client.get(url, absl::Seconds(20));
  ASSERT_TRUE(page.ok()) << page.status() << output;
  for (const char* line : {"\nbascule_train_step ", "\nbascule_train_last_step 1000\n", "\nbascule_train_left_seconds ",
                           "\nbascule_train_reward{name=\"exact_match\"} ", "\nbascule_train_learning_rate ",
                           "\nbascule_train_engine_tokens_total{engine=\"http://"})
    EXPECT_THAT(page->body, HasSubstr(line));
  const std::string health = url.substr(0, url.rfind('/')) + "/health";
  EXPECT_EQ(nlohmann::json::parse(client.get(health, absl::Seconds(20))->body)["state"], "training");

  train.signal(SIGTERM);
  EXPECT_EQ(train.wait(60s), 0) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("\nstep 1 took "));
  EXPECT_THAT(train.output(), HasSubstr("999 steps more take about "));
  EXPECT_THAT(train.output(), HasSubstr("  left "));
  EXPECT_THAT(train.output(), HasSubstr("stopped after step "));
  const std::vector<nlohmann::json> lines = metrics("out");
  EXPECT_LT(lines.back()["learning_rate"], lines[1]["learning_rate"]) << "it falls";
  for (const char* key : {"entropy", "groups", "flat_groups", "tail_seconds", "idle_engine_seconds", "trained_tokens"})
    EXPECT_TRUE(lines[1][key].is_number()) << key;
  EXPECT_GT(lines[1]["engine_use"][0]["tokens_per_second"], 0);
  EXPECT_GT(lines[1]["importance"]["mean"], 0.5);
}

// The demo answers one problem in five: with four completions of each, a third of the groups or more are flat.
TEST_F(Train, FlatGroupsGiveWayToThoseOfFurtherProblems) {
  Program only = engine("engine-0");
  Program train = trainer(url_of(only), "out",
                          {"--steps",
                           "3",
                           "--prompts-per-step",
                           "8",
                           "--group-size",
                           "4",
                           "--eval-every",
                           "0",
                           "--dynamic-sampling",
                           "8",
                           "--mini-batches",
                           "2",
                           "--importance-level",
                           "sequence",
                           "--overlong-buffer",
                           "1",
                           "--overlong-penalty",
                           "0.5",
                           "--max-staleness",
                           "1"});
  ASSERT_EQ(train.wait(90s), 0) << train.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 4);
  int flat = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["groups"], 8);
    EXPECT_EQ(lines[i]["replaced_groups"], lines[i]["flat_groups"]) << "eight rounds suffice";
    EXPECT_EQ(lines[i]["updates"], 2);
    EXPECT_LE(lines[i]["rewards"]["overlong"], 0);
    flat += lines[i]["flat_groups"].get<int>();
  }
  EXPECT_GT(flat, 0);
  EXPECT_THAT(train.output(), Not(HasSubstr("no token ends a text"))) << "the demo's does";
  EXPECT_THAT(only.output(), Not(HasSubstr("no token ends a text")));
}

// within_length does not apply to problems without the column max_bytes.
TEST_F(Train, LearnsNothingFromCompletionsToWhichNoRewardApplies) {
  for (const std::string slots : {"2", "1"}) {  // also if engines read the trainer's own weights
    sync_ = "shm://" + (folder_ / ("slots_" + slots)).string() + "?slots=" + slots;
    Program only = engine("engine-0");
    Program train = trainer(url_of(only), slots,
                            {"--steps", "2", "--prompts-per-step", "2", "--group-size", "2", "--reward",
                             "within_length", "--beta", "0.1", "--dynamic-sampling", "1", "--overlong-buffer", "1"});
    ASSERT_EQ(train.wait(90s), 0) << train.output();
    const std::vector<nlohmann::json> lines = metrics(slots);
    ASSERT_EQ(lines.size(), 3);
    for (std::size_t i = 1; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["unscored"], 4);
      EXPECT_EQ(lines[i]["flat_groups"], 2);
      EXPECT_EQ(lines[i]["replaced_groups"], 0) << "the further ones are also flat";
      EXPECT_EQ(lines[i]["updates"], 0);
      EXPECT_TRUE(lines[i]["reward_mean"].is_null() && lines[i]["rewards"]["overlong"].is_null()) << lines[i];
    }
    EXPECT_TRUE(lines[0].at("eval_reward").is_null() && lines[2].at("eval_greedy").is_null());
    EXPECT_THAT(train.output(),
                HasSubstr("no reward applies to any completion of step 1: nothing is learned from them"));
    EXPECT_THAT(train.output(), HasSubstr("step 2/2"));
    EXPECT_THAT(train.output(), Not(HasSubstr("nan")));
  }
}

TEST_F(Train, SaysThatNothingEndsATextAndThatEveryCompletionWasCut) {
  const std::string model = (folder_ / "model").string();
  std::filesystem::copy(BASCULE_DEMO_MODEL, model);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder_ / "model" / "config.json"));
  config["eos_token_id"] = nullptr;
  std::ofstream(folder_ / "model" / "config.json") << config;
  Program only = engine("engine-0", "0", {"--model", model});
  Program train =
      trainer(url_of(only), "out", {"--model", model, "--steps", "2", "--prompts-per-step", "2", "--group-size", "2"});
  ASSERT_EQ(train.wait(90s), 0) << train.output();
  EXPECT_THAT(only.output(), HasSubstr("bascule-engine: no token ends a text: config.json and generation_config.json"));
  EXPECT_THAT(train.output(), HasSubstr("no token ends a text: config.json and generation_config.json have no "
                                        "eos_token_id, and the tokenizer has no eos_token; --max-tokens=3 will cut"));
  EXPECT_THAT(train.output(), HasSubstr("\nstep 1: --max-tokens cut off every completion"));
  EXPECT_THAT(train.output(), Not(HasSubstr("\nstep 2: --max-tokens cut off"))) << "once";
}

// The engine is evicted meanwhile, and answers waiting requests with its old version.
TEST_F(Train, GoesOnWhenTheOnlyEngineStoodStill) {
  Program only = engine("engine-0");
  Program train = trainer(url_of(only), "out",
                          {"--steps", "150", "--prompts-per-step", "8", "--group-size", "8", "--eval-every", "0"});
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 5; }, 60s)) << train.output();
  only.signal(SIGSTOP);
  std::this_thread::sleep_for(7s);
  only.signal(SIGCONT);
  EXPECT_EQ(train.wait(120s), 0) << train.output();
  EXPECT_EQ(metrics("out").size(), 151);
}

}  // namespace
}  // namespace bascule::test
