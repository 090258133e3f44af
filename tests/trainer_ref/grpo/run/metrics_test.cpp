#include <bascule/trainer_ref/grpo/run/metrics.h>

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include <bascule/trainer_ref/grpo/run/json_lines.h>
#include <bascule/trainer_ref/grpo/run/report.h>

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class WrittenRun : public ::testing::Test {
 protected:
  WrittenRun() { std::filesystem::create_directories(out_); }
  ~WrittenRun() override { std::filesystem::remove_all(out_); }
  std::string text(const char* name) const {
    std::ifstream stream(out_ / name);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  const std::filesystem::path out_ =
      std::filesystem::path(::testing::TempDir()) / ("run_" + std::to_string(::getpid()));
};

StepMetrics step(std::int64_t number) {
  StepMetrics metrics{.step = number, .version = 5, .reward_mean = 0.5, .update = {.loss = -0.25}};
  metrics.send.emplace();
  metrics.send->seconds.pack = 0.25;
  metrics.send->workers.push_back(
      {.worker = "engine-1", .state = WorkerState::kEvicted, .error = absl::UnavailableError("it died")});
  metrics.rollouts.lags = {3, 0, 1};
  metrics.rollouts.spans.push_back({.engine = "http://127.0.0.1:1", .version = 4, .tokens = 9});
  metrics.rollouts.use = {{"http://127.0.0.1:1", {.tokens = 9, .busy_seconds = 3, .idle_seconds = 0.5}},
                          {"http://127.0.0.1:2", {.idle_seconds = 0.25}}};
  return metrics;
}

TEST(Metrics, ALineHasTheKeysOfTheDocumentation) {
  const nlohmann::json line = to_json(step(3));
  std::vector<std::string> keys, seconds;
  for (const auto& [key, value] : line.items()) keys.push_back(key);
  for (const auto& [key, value] : line["seconds"].items()) seconds.push_back(key);
  EXPECT_THAT(keys, IsSupersetOf({"step", "version", "reward_mean", "reward_std", "loss", "kl", "clip_fraction",
                                  "grad_norm", "completion_tokens_mean", "cut_fraction", "staleness_mean", "seconds",
                                  "learning_rate", "entropy", "unscored", "flat_groups", "tail_seconds"}));
  EXPECT_THAT(seconds, ::testing::UnorderedElementsAre("rollout", "score", "train", "send"));
  EXPECT_EQ(line["reward_mean"], 0.5);
  EXPECT_TRUE(line["kl"].is_null()) << "not measured";
  EXPECT_FALSE(line.contains("eval_reward"));
  EXPECT_EQ(line["lag"], (nlohmann::json{{"mean", 0.5}, {"max", 2}, {"completions", {3, 0, 1}}}));
  EXPECT_EQ(line["engine_use"][0]["tokens_per_second"], 3);
  EXPECT_TRUE(line["engine_use"][1]["tokens_per_second"].is_null()) << "it had no work";
  EXPECT_EQ(line["idle_engine_seconds"], 0.75);
  EXPECT_EQ(line["importance"], (nlohmann::json{{"mean", nullptr}, {"capped", nullptr}}));
  EXPECT_EQ(line["send"]["seconds"]["pack"], 0.25);
  EXPECT_EQ(line["send"]["workers"][0]["error"], "it died");
}

TEST(Metrics, EachRewardHasItsName) {
  StepMetrics metrics = step(3);
  metrics.rewards = {{"exact_match", 0.25}, {"exec:reward.py", kNoNumber}};
  metrics.eval_rewards = {{"exact_match", 0.5}};
  EXPECT_EQ(to_json(metrics)["rewards"], (nlohmann::json{{"exact_match", 0.25}, {"exec:reward.py", nullptr}}));
  EXPECT_EQ(to_json(metrics)["eval_rewards"], (nlohmann::json{{"exact_match", 0.5}}));
}

TEST(Metrics, SkippedUpdatesAreCountedAndNamed) {
  StepMetrics metrics = step(3);
  EXPECT_EQ(to_json(metrics)["skipped_updates"], 0);
  metrics.update.skipped = 2;
  metrics.update.loss = kNoNumber;
  EXPECT_EQ(to_json(metrics)["skipped_updates"], 2);
  EXPECT_TRUE(to_json(metrics)["loss"].is_null());
}

TEST(Metrics, UnscoredCompletionsAreCounted) {
  StepMetrics metrics = step(3);
  metrics.reward_mean = kNoNumber;
  metrics.eval_reward = kNoNumber;
  metrics.unscored = 7;
  const nlohmann::json line = to_json(metrics);
  EXPECT_EQ(line["unscored"], 7);
  EXPECT_TRUE(line["reward_mean"].is_null());
  EXPECT_TRUE(line.at("eval_reward").is_null()) << "it was evaluated, and nothing was scored";
}

TEST(Metrics, EvaluationsStandInTheirLine) {
  StepMetrics metrics = step(0);
  metrics.eval_reward = 0.25;
  metrics.eval_greedy = 1;
  EXPECT_EQ(to_json(metrics)["eval_reward"], 0.25);
  EXPECT_EQ(to_json(metrics)["eval_greedy"], 1);
  EXPECT_FALSE(to_json(metrics).contains("rewards")) << "nothing was trained";
}

TEST_F(WrittenRun, AResumedRunKeepsTheLinesBeforeIt) {
  const std::filesystem::path file = out_ / "metrics.jsonl";
  ASSERT_TRUE(keep_steps(file, 3).ok()) << "there may be none";
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(append_json_line(file, to_json(step(i))).ok());
  ASSERT_TRUE(keep_steps(file, 3).ok());
  const auto lines = read_json_lines(file);
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 4);
  EXPECT_EQ(lines->back()["step"], 3);
}

TEST_F(WrittenRun, ATextThatIsNotUtf8CostsItsOddBytesOnly) {
  const std::filesystem::path file = out_ / "completions.jsonl";
  ASSERT_TRUE(append_json_line(file, {{"step", 1}, {"prompt", "caf\xe9"}}).ok());
  ASSERT_TRUE(keep_steps(file, 1).ok());
  EXPECT_EQ(text("completions.jsonl"), "{\"prompt\":\"caf\xef\xbf\xbd\",\"step\":1}\n");
}

TEST_F(WrittenRun, TheReportHoldsTheRunAndLoadsNothing) {
  ASSERT_TRUE(append_json_line(out_ / "metrics.jsonl", to_json(step(0))).ok());
  ASSERT_TRUE(
      append_json_line(out_ / "completions.jsonl", {{"step", 0}, {"problems", {{{"prompt", "</script>"}}}}}).ok());
  std::ofstream(out_ / "run.json") << R"({"about": "a <b>run</b>"})";
  const absl::Status status = write_report(out_);
  ASSERT_TRUE(status.ok()) << status;
  const std::string page = text("report.html");
  EXPECT_THAT(page, HasSubstr("\"reward_mean\":0.5"));
  EXPECT_THAT(page, HasSubstr(R"("prompt":"\u003c/script>")")) << "a text cannot end the script";
  EXPECT_THAT(page, Not(HasSubstr("/*DATA*/")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("href=")));
  EXPECT_THAT(page, Not(HasSubstr("url(")));
}

TEST_F(WrittenRun, ALineThatAKilledRunLeftHalfWrittenIsNone) {
  const std::filesystem::path file = out_ / "metrics.jsonl";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(append_json_line(file, to_json(step(i))).ok());
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 9);
  const auto lines = read_json_lines(file);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->size(), 2);
  ASSERT_TRUE(keep_steps(file, 2).ok());
  ASSERT_TRUE(append_json_line(file, to_json(step(2))).ok());
  EXPECT_EQ(read_json_lines(file)->size(), 3) << "the next one begins a new line";
}

TEST_F(WrittenRun, ABrokenLineIsNamed) {
  std::ofstream(out_ / "metrics.jsonl") << "{}\nnonsense\n";
  EXPECT_THAT(read_json_lines(out_ / "metrics.jsonl").status().message(), HasSubstr("line 2"));
}

}  // namespace
}  // namespace bascule::ref
