#include <bascule/trainer_ref/grpo/metrics_page.h>

#include <gmock/gmock.h>

#include "support/status.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::ref {
namespace {

using ::bascule::test::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsPage, IsTheNewestLineWithSumsSinceTheProgramBegan) {
  const auto page = MetricsPage::serve("127.0.0.1:0");
  ASSERT_THAT(page, IsOk());
  HttpClient client;
  const auto get = [&](const char* path) { return client.get((*page)->url() + path, absl::Seconds(20))->body; };
  EXPECT_EQ(get("/health"), R"({"state":"starting","step":0,"steps":0})");

  for (std::int64_t step = 0; step < 3; ++step) {
    StepMetrics line{.step = step, .reward_mean = 0.25, .rewards = {{"exec:a \"b\"", 0.5}}};
    line.update = {.loss = 0.125, .learning_rate = 1e-6, .skipped = step, .tokens = 10};
    line.seconds.rollout = 1.5;
    line.rollouts.use = {{"http://a", {.tokens = 7, .busy_seconds = 0.5}}};
    (*page)->show(line, 9, 33);
  }
  EXPECT_EQ(get("/health"), R"({"state":"training","step":2,"steps":9})");
  const std::string text = get("/metrics");
  EXPECT_THAT(text,
              HasSubstr("# HELP bascule_train_step The last step that was trained.\n# TYPE bascule_train_step gauge\n"
                        "bascule_train_step 2\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_left_seconds 33\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_learning_rate 1e-06\n"));
  EXPECT_THAT(text, HasSubstr(R"(bascule_train_reward{name="exec:a \"b\""} 0.5)"));
  EXPECT_THAT(text, HasSubstr(R"(bascule_train_step_seconds{part="rollout"} 1.5)"));
  EXPECT_THAT(text, HasSubstr(R"(bascule_train_engine_tokens_total{engine="http://a"} 21)"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_skipped_updates_total 3\n"));
  EXPECT_THAT(text, HasSubstr("\nbascule_train_steps_total 2\n")) << "step 0 trains nothing";
  EXPECT_THAT(text, Not(HasSubstr("nan"))) << "what was not measured is not there";
}

}  // namespace
}  // namespace bascule::ref
