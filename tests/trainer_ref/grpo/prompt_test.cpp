#include <bascule/trainer_ref/grpo/prompt.h>

#include <gmock/gmock.h>

#include "support/status.h"

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Problem kChat{.answer = "4", .messages = {{{"role", "user"}, {"content", "2+2"}}}};

class Prompt : public ::testing::Test {
 protected:
  const Tokenizer tokenizer_ = *Tokenizer::read(BASCULE_DEMO_MODEL);
  absl::Status check(Problem problem) const { return check_prompts(std::vector{std::move(problem)}, tokenizer_, 14); }
};

TEST_F(Prompt, TokenIdsAreSentAsTheyAre) {
  EXPECT_THAT(*prompt_tokens({.prompt = "7+"}, tokenizer_), ElementsAre(7, 10));
  EXPECT_THAT(*prompt_tokens({.prompt = "7+", .prompt_token_ids = {3, 4}}, tokenizer_), ElementsAre(3, 4));
  EXPECT_THAT(prompt_tokens(kChat, tokenizer_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a text or token ids, found messages")));
}

TEST_F(Prompt, WhatTheModelCannotReadIsFoundBeforeARun) {
  EXPECT_THAT(check({.prompt = "7+"}), IsOk());
  EXPECT_THAT(check({.prompt_token_ids = {0, 13}}), IsOk());
  EXPECT_THAT(std::string(check({.prompt = "7x"}).message()), StartsWith("prompt \"7x\": "));
  EXPECT_THAT(std::string(check({.prompt_token_ids = {0, 14}}).message()),
              HasSubstr("prompt [0,14]: expected token ids below 14, the model's vocabulary, found 14"));
  EXPECT_THAT(std::string(check(kChat).message()), AllOf(HasSubstr("2+2"), HasSubstr("chat template")));
}

TEST_F(Prompt, IsShownToPeople) {
  EXPECT_EQ(shown_prompt({.prompt = "7+", .prompt_token_ids = {1}}), "7+");
  EXPECT_EQ(shown_prompt({.prompt_token_ids = {1, 2}}), "[1,2]");
  EXPECT_EQ(shown_prompt(kChat), R"([{"content":"2+2","role":"user"}])");
}

}  // namespace
}  // namespace bascule::ref
