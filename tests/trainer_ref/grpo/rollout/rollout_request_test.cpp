#include <bascule/trainer_ref/grpo/rollout/rollout_request.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Also what is off is named, so that no server puts a model's own defaults in its place.
TEST(RolloutRequest, IsAskedAsJson) {
  const RolloutRequest request{
      .prompt = {0, 7, 10}, .completions = 16, .max_tokens = 3, .temperature = 0.5, .seed = 18446744073709551615u};
  EXPECT_EQ(nlohmann::json::parse(to_json(request)), (nlohmann::json{{"prompt", {0, 7, 10}},
                                                                     {"n", 16},
                                                                     {"max_tokens", 3},
                                                                     {"temperature", 0.5},
                                                                     {"top_k", 0},
                                                                     {"top_p", 1.0},
                                                                     {"min_p", 0},
                                                                     {"repetition_penalty", 1},
                                                                     {"presence_penalty", 0},
                                                                     {"frequency_penalty", 0},
                                                                     {"seed", 18446744073709551615u},
                                                                     {"logprobs", 0},
                                                                     {"logprobs_mode", "processed"},
                                                                     {"return_token_ids", true}}));
}

TEST(RolloutRequest, AsksForFewerTokensWhereItIsTold) {
  const nlohmann::json asked =
      nlohmann::json::parse(to_json({.prompt = {0}, .top_k = 50, .top_p = 0.9, .min_p = 0.05}));
  EXPECT_EQ(asked["top_k"], 50);
  EXPECT_EQ(asked["top_p"], 0.9);
  EXPECT_EQ(asked["min_p"], 0.05);
}

TEST(RolloutRequest, NamesTheAdapter) {
  EXPECT_EQ(nlohmann::json::parse(to_json({.prompt = {0}}, "policy"))["model"], "policy");
  EXPECT_FALSE(nlohmann::json::parse(to_json({.prompt = {0}})).contains("model"));
}

TEST(RolloutRequest, ReadsTokensWithProbabilityAndVersion) {
  const auto rollouts = read_rollouts(R"({"choices": [{"index": 0, "text": "7", "token_ids": [7, 13],
      "logprobs": {"token_logprobs": [-0.5, -0.25]}, "epochs": [8, 9], "versions": [4, 5], "finish_reason": "stop"}]})");
  ASSERT_TRUE(rollouts.ok()) << rollouts.status();
  ASSERT_EQ(rollouts->size(), 1);
  EXPECT_THAT((*rollouts)[0].token_ids, ElementsAre(7, 13));
  EXPECT_THAT((*rollouts)[0].log_probs, ElementsAre(-0.5f, -0.25f));
  EXPECT_THAT((*rollouts)[0].versions, ElementsAre(4, 5));
  EXPECT_THAT((*rollouts)[0].epochs, ElementsAre(8, 9));
  EXPECT_EQ((*rollouts)[0].finish_reason, "stop");
}

TEST(RolloutRequest, NamesWhatAnAnswerLacks) {
  EXPECT_THAT(read_rollouts("hello").status().message(), HasSubstr("not valid JSON"));
  EXPECT_THAT(read_rollouts("{}").status().message(), HasSubstr("\"choices\""));
  EXPECT_THAT(read_rollouts(R"({"choices": [{"text": "7"}]})").status().message(), HasSubstr("\"token_ids\""));
  EXPECT_THAT(
      read_rollouts(R"({"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [null]}, "versions": [1]}]})")
          .status()
          .message(),
      HasSubstr("\"token_logprobs\" holds null"));
  EXPECT_THAT(
      read_rollouts(
          R"({"choices": [{"token_ids": [1, 2], "logprobs": {"token_logprobs": [-1]}, "epochs": [1], "versions": [1, 1]}]})")
          .status()
          .message(),
      HasSubstr("a choice of 2 tokens has 1 log-probabilities, 1 epochs and 2 versions"));
}

}  // namespace
}  // namespace bascule::ref
