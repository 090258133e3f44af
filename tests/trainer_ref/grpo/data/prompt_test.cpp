#include <bascule/trainer_ref/grpo/data/prompt.h>

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
  const PromptWriter plain_{tokenizer_};

  PromptWriter writer(const std::string& text, ChatOptions options = {}) const {
    return PromptWriter(tokenizer_, *ChatTemplate::parse(text), std::move(options));
  }
  // The prompt's text.
  std::string text(const PromptWriter& writer, const Problem& problem) const {
    const auto tokens = writer.tokens_of(problem);
    EXPECT_THAT(tokens, IsOk());
    return tokens.ok() ? tokenizer_.decode(*tokens, /*with_special_tokens=*/true) : "";
  }
  absl::Status check(Problem problem) const { return check_prompts(std::vector{std::move(problem)}, plain_, 14); }
};

TEST_F(Prompt, TokenIdsAreSentAsTheyAre) {
  EXPECT_THAT(*plain_.tokens_of({.prompt = "7+"}), ElementsAre(7, 10));
  EXPECT_THAT(*plain_.tokens_of({.prompt = "7+", .prompt_token_ids = {3, 4}}), ElementsAre(3, 4));
  const PromptWriter chat = writer("1", {.texts = true});
  EXPECT_THAT(*chat.tokens_of({.prompt = "7+", .prompt_token_ids = {3, 4}}), ElementsAre(3, 4));
}

TEST_F(Prompt, MessagesAreWrittenByTheChatTemplate) {
  const PromptWriter chat = writer(
      "{% for m in messages %}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}={% endif %}{{ sign }}",
      {.variables = {{"sign", "+"}}});
  EXPECT_EQ(text(chat, kChat), "2+2<end>=+");
  EXPECT_THAT(*chat.tokens_of(kChat), ElementsAre(2, 10, 2, 13, 11, 10)) << "<end> is one token";
  EXPECT_EQ(text(chat, {.prompt = "7+"}), "7+") << "a text stays a text";
  EXPECT_THAT(plain_.tokens_of(kChat),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found messages, and no chat template")));
}

TEST_F(Prompt, ATextBecomesAConversationWhereItIsTold) {
  const std::string roles =
      "{% for m in messages %}{{ '1' if m.role == 'system' else '2' }}{{ m.content }} {% endfor %}";
  EXPECT_EQ(text(writer(roles, {.texts = true}), {.prompt = "7+"}), "27+ ");
  EXPECT_EQ(text(writer(roles, {.texts = true, .system_prompt = "9"}), {.prompt = "7+"}), "19 27+ ");
  EXPECT_EQ(text(writer(roles, {.texts = true, .system_prompt = "9"}), kChat), "22+2 ") << "messages are whole";
}

TEST_F(Prompt, TheTemplateIsNeededWhereItWritesAPrompt) {
  const Task texts{.train = {{.prompt = "7+"}}, .held_out = {{.prompt = "8+"}}},
      chats{.train = {kChat}, .held_out = {}};
  EXPECT_FALSE(needs_template({}, texts));
  EXPECT_TRUE(needs_template({.texts = true}, texts));
  EXPECT_TRUE(needs_template({}, chats));
  EXPECT_FALSE(needs_template({.texts = true}, {.train = {{.prompt_token_ids = {1}}}, .held_out = {}}));
}

TEST_F(Prompt, WhatTheModelCannotReadIsFoundBeforeARun) {
  EXPECT_THAT(check({.prompt = "7+"}), IsOk());
  EXPECT_THAT(check({.prompt_token_ids = {0, 13}}), IsOk());
  EXPECT_THAT(std::string(check({.prompt = "7x"}).message()), StartsWith("prompt \"7x\": "));
  EXPECT_THAT(std::string(check({.prompt_token_ids = {0, 14}}).message()),
              HasSubstr("prompt [0,14]: expected token ids below 14, the model's vocabulary, found 14"));
  EXPECT_THAT(std::string(check(kChat).message()), AllOf(HasSubstr("2+2"), HasSubstr("chat template")));
  EXPECT_THAT(std::string(check_prompts(std::vector{kChat}, writer("{{ raise_exception('no chats') }}"), 14).message()),
              AllOf(HasSubstr("2+2"), HasSubstr("no chats")));
  EXPECT_THAT(std::string(check_prompts(std::vector{kChat}, writer(""), 14).message()), HasSubstr("found none"));
}

TEST_F(Prompt, IsShownToPeople) {
  EXPECT_EQ(shown_prompt({.prompt = "7+", .prompt_token_ids = {1}}), "7+");
  EXPECT_EQ(shown_prompt({.prompt_token_ids = {1, 2}}), "[1,2]");
  EXPECT_EQ(shown_prompt(kChat), R"([{"role":"user","content":"2+2"}])");
}

}  // namespace
}  // namespace bascule::ref
