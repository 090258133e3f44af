#include <bascule/trainer_ref/grpo/rollout/evaluation.h>

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "support/status.h"
#include "support/temp_folder.h"
#include "trainer_ref/grpo/ports.h"

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using test::AnsweringPort;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

nlohmann::json choice(const std::vector<int>& token_ids, const std::string& finish_reason) {
  return {{"token_ids", token_ids},
          {"logprobs", {{"token_logprobs", std::vector<double>(token_ids.size(), -1)}}},
          {"epochs", std::vector<int>(token_ids.size(), 1)},
          {"versions", std::vector<int>(token_ids.size(), 1)},
          {"finish_reason", finish_reason}};
}

// An engine with the demo's tokens that answers 7+: sampled, with 8 and with 9, which is cut off; greedily, with 8.
AnsweringPort::Answer answer(const std::string& body) {
  const nlohmann::json request = nlohmann::json::parse(body);
  nlohmann::json choices = {choice({8}, "stop")};
  if (request["n"] == 2) choices.push_back(choice({9}, "length"));
  return {.status = 200, .body = nlohmann::json{{"choices", choices}}.dump()};
}

class EvaluationTest : public ::testing::Test {
 protected:
  absl::StatusOr<Evaluation> evaluated(const std::string& rewards) {
    const auto made = make_rewards(*parse_rewards(rewards), {});
    return evaluate(pool_, prompts_, problems_, *made, {.samples = 2, .max_tokens = 3, .seed = 1});
  }

  const AnsweringPort engine_{answer};
  EnginePool pool_{{.urls = {engine_.url}, .batch = 1}};
  const PromptWriter prompts_{*Tokenizer::read(BASCULE_DEMO_MODEL)};
  std::vector<Problem> problems_{{.prompt = "7+", .answer = "8"}, {.answer = "5", .prompt_token_ids = {7, 10}}};
};

// A reward that runs prompt and completion as one program needs each space. This tokenizer, as Llama 2's, drops the
// space at the beginning of a text.
TEST(Groups, ACompletionsTextGoesOnAfterThePrompt) {
  const test::TempFolder folder;
  std::ofstream(folder.path() / "tokenizer.json") << nlohmann::json{
      {"model", {{"type", "WordLevel"}, {"vocab", {{"<unk>", 0}, {"\u2581a", 1}, {"b", 2}}}, {"unk_token", "<unk>"}}},
      {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}}}};
  const Problem problem;
  Generation generation;
  generation.rollouts.resize(2);
  generation.rollouts[0].token_ids = {1, 2};
  generation.rollouts[1].token_ids = {2, 1};
  const std::vector<CompletionGroup> groups =
      groups_of({{.problem = &problem, .prompt = {1}}}, {std::move(generation)}, *Tokenizer::read(folder.path()));
  EXPECT_EQ(groups.front().rollouts[0].text, " ab");
  EXPECT_EQ(groups.front().rollouts[1].text, "b a");
}

TEST_F(EvaluationTest, IsTheMeanOfTheRunsOwnRewards) {
  const auto match = evaluated("exact_match");
  ASSERT_THAT(match, IsOk());
  EXPECT_EQ(match->reward, 0.25) << "one of four";
  EXPECT_EQ(match->greedy, 0.5);
  const auto weighted = evaluated("exact_match=2,finished=0.5");
  ASSERT_THAT(weighted, IsOk());
  EXPECT_EQ(weighted->reward, 2 * 0.25 + 0.5 * 0.5);
  EXPECT_EQ(weighted->greedy, 2 * 0.5 + 0.5 * 1);
  EXPECT_THAT(weighted->rewards, ElementsAre(Pair("exact_match", 0.25), Pair("finished", 0.5)));
  EXPECT_EQ(weighted->sampled[0].rollouts[0].reward, 2.5);
}

// within_length applies to the first problem only, whose answers are 8, 9 and, greedily, 8.
TEST_F(EvaluationTest, UnscoredCompletionsAreNotInTheMean) {
  problems_[0].columns["max_bytes"] = 1;
  const auto some = evaluated("within_length");
  ASSERT_THAT(some, IsOk());
  EXPECT_EQ(some->reward, 1);
  EXPECT_EQ(some->greedy, 1);
  const nlohmann::json shown = shown_completions(*some, 2);
  EXPECT_EQ(shown[0]["sampled_rewards"], (nlohmann::json{1.0, 1.0}));
  EXPECT_EQ(shown[1]["sampled_rewards"], (nlohmann::json{nullptr, nullptr}));

  problems_[0].columns.erase("max_bytes");
  const auto none = evaluated("within_length");
  ASSERT_THAT(none, IsOk());
  EXPECT_TRUE(std::isnan(none->reward) && std::isnan(none->greedy));
}

TEST_F(EvaluationTest, ARewardThatFailsIsNamed) {
  EXPECT_THAT(
      evaluated("exact_match,exec:sh -c exit\\ 4"),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("reward exec:sh -c exit 4: it ended with exit status 4")));
}

TEST_F(EvaluationTest, ShowsPromptsAnswersAndRewards) {
  const auto evaluation = evaluated("exact_match=2,finished=0.5");
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(shown_completions(*evaluation, 2), (nlohmann::json{{{"prompt", "7+"},
                                                                {"answer", "8"},
                                                                {"sampled", {"8", "9"}},
                                                                {"sampled_rewards", {2.5, 0.0}},
                                                                {"greedy", {"8"}},
                                                                {"greedy_rewards", {2.5}}},
                                                               {{"prompt", "[7,10]"},
                                                                {"answer", "5"},
                                                                {"sampled", {"8", "9"}},
                                                                {"sampled_rewards", {0.5, 0.0}},
                                                                {"greedy", {"8"}},
                                                                {"greedy_rewards", {0.5}}}}));
}

}  // namespace
}  // namespace bascule::ref
