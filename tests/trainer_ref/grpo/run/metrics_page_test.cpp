#include <bascule/trainer_ref/grpo/run/metrics_page.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "support/status.h"
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/json.h>

namespace bascule::ref {
namespace {

using ::bascule::test::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

// The first sample of a family, or 0 if there is none.
double sample(const MetricsPage& page, const std::string& family) {
  const std::string text = page.metrics_text(), line = "\nbascule_train_" + family + " ";
  return std::strtod(text.c_str() + std::min(text.find(line), text.size() - line.size()) + line.size(), nullptr);
}

nlohmann::json health(const MetricsPage& page) { return *parse_json(page.health_json(), "/health"); }

SendReport sent(Version version) {
  SendReport report;
  report.version = version;
  report.bytes = 1000;
  report.seconds.pack = 0.5;
  return report;
}

TEST(MetricsPage, IsTheNewestLineWithSumsSinceTheProgramBegan) {
  const auto page = MetricsPage::serve("127.0.0.1:0");
  ASSERT_THAT(page, IsOk());
  HttpClient client;
  const auto get = [&](const char* path) { return client.get((*page)->url() + path, absl::Seconds(20))->body; };
  EXPECT_THAT(get("/health"), HasSubstr(R"("state":"starting","step":0,"steps":0})"));

  for (std::int64_t step = 0; step < 3; ++step) {
    StepMetrics line{.step = step,
                     .reward_mean = 0.25,
                     .rewards = {{"exec:a \"b\"", 0.5}},
                     .unscored = 4,
                     .flat_groups = 5,
                     .replaced_groups = 3};
    line.update = {.loss = 0.125, .learning_rate = 1e-6, .skipped = step, .tokens = 10};
    line.seconds.rollout = 1.5;
    line.rollouts.use = {{"http://a", {.tokens = 7, .busy_seconds = 0.5}}};
    (*page)->show(line, 9, 33);
  }
  EXPECT_THAT(get("/health"), HasSubstr(R"("state":"training","step":2,"steps":9})"));
  const std::string text = get("/metrics");
  EXPECT_THAT(text,
              HasSubstr("# HELP bascule_train_step The last step that was trained.\n# TYPE bascule_train_step gauge\n"
                        "bascule_train_step 2\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_left_seconds 33\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_unscored_completions 4\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_flat_groups 5\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_replaced_groups 3\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_learning_rate 1e-06\n"));
  EXPECT_THAT(text, HasSubstr(R"(bascule_train_reward{name="exec:a \"b\""} 0.5)"));
  EXPECT_THAT(text, HasSubstr(R"(bascule_train_step_seconds{part="rollout"} 1.5)"));
  EXPECT_THAT(text, HasSubstr(R"(bascule_train_engine_tokens_total{engine="http://a"} 21)"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_skipped_updates_total 3\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_steps_total 2\n")) << "step 0 trains nothing";
  EXPECT_THAT(text, Not(HasSubstr("nan"))) << "values that were not measured are absent";
  EXPECT_THAT(text, Not(HasSubstr("\nbascule_train_importance_weight_mean "))) << "as with --importance-cap 0";
}

TEST(MetricsPage, KeepsTheLastEvaluation) {
  const auto page = MetricsPage::serve("127.0.0.1:0");
  ASSERT_THAT(page, IsOk());
  (*page)->show({.step = 4, .eval_reward = 0.25, .eval_greedy = 0.75, .eval_rewards = {{"math", 0.125}}}, 9, 0);
  (*page)->show({.step = 5}, 9, 0);
  const std::string text = (*page)->metrics_text();
  EXPECT_THAT(text, HasSubstr("\nbascule_train_eval_reward{completions=\"sampled\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_eval_reward{completions=\"greedy\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_eval_named_reward{name=\"math\"} 0.125\n"));
  (*page)->show({.step = 6, .eval_reward = 0.5}, 9, 0);
  EXPECT_THAT((*page)->metrics_text(), HasSubstr("\nbascule_train_eval_reward{completions=\"sampled\"} 0.5\n"));
  EXPECT_THAT((*page)->metrics_text(), Not(HasSubstr("completions=\"greedy\""))) << "it is of another step";
}

TEST(MetricsPage, ARunThatGoesOnSaysWhereItIsBeforeItsNextStepEnds) {
  const auto page = MetricsPage::serve("127.0.0.1:0");
  ASSERT_THAT(page, IsOk());
  (*page)->begin(40, 60, 1200, sent(41));
  EXPECT_THAT((*page)->health_json(), HasSubstr(R"("state":"training","step":40,"steps":60})"));
  EXPECT_EQ(sample(**page, "step"), 40);
  EXPECT_EQ(sample(**page, "last_step"), 60);
  EXPECT_EQ(sample(**page, "version"), 41);
  EXPECT_EQ(sample(**page, "elapsed_seconds"), 1200);
  EXPECT_EQ(sample(**page, "sent_bytes_total"), 1000);
  EXPECT_EQ(sample(**page, "send_seconds_total"), 0.5);
  EXPECT_EQ(sample(**page, "steps_total"), 0) << "this program has trained none";
}

TEST(MetricsPage, CountsEachSendOnce) {
  const auto page = MetricsPage::serve("127.0.0.1:0");
  ASSERT_THAT(page, IsOk());
  (*page)->begin(0, 60, 0, sent(41));
  (*page)->show({.step = 0, .send = sent(41)}, 60, 0);
  EXPECT_EQ(sample(**page, "sent_bytes_total"), 1000) << "begin() has counted it";
  (*page)->show({.step = 1, .send = sent(42)}, 60, 0);
  (*page)->show({.step = 2}, 60, 0);
  EXPECT_EQ(sample(**page, "sent_bytes_total"), 2000);
}

TEST(MetricsPage, TellsWhenTheLastStepEnded) {
  using Seconds = std::chrono::duration<double>;
  const auto page = MetricsPage::serve("127.0.0.1:0");
  ASSERT_THAT(page, IsOk());
  for (const bool begins : {true, false}) {
    const double before = sample(**page, "last_step_timestamp_seconds");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_GE(health(**page)["seconds_since_step"], 0.02) << "it grows until a step ends";
    EXPECT_EQ(sample(**page, "last_step_timestamp_seconds"), before);

    const auto told = std::chrono::steady_clock::now();
    const auto told_at = std::chrono::system_clock::now();
    begins ? (*page)->begin(0, 9, 0, sent(41)) : (*page)->show({.step = 1}, 9, 0);
    const double since = health(**page)["seconds_since_step"], at = sample(**page, "last_step_timestamp_seconds");
    EXPECT_LE(since, Seconds(std::chrono::steady_clock::now() - told).count());
    EXPECT_GE(at, Seconds(told_at.time_since_epoch()).count());
    EXPECT_LE(at, Seconds(std::chrono::system_clock::now().time_since_epoch()).count());
  }
}

}  // namespace
}  // namespace bascule::ref
