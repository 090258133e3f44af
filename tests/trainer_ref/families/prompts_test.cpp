// Compares the trainer's prompts with transformers'.
#include "families.h"
#include "support/status.h"
#include <bascule/trainer_ref/grpo/data/prompt.h>

namespace bascule::ref::test {
namespace {

using bascule::test::IsOk;

class Prompts : public testing::TestWithParam<const char*> {
 protected:
  Prompts()
      : tokenizer_(Tokenizer::read(family_folder(GetParam()))), chat_(ChatTemplate::read(family_folder(GetParam()))) {}
  void SetUp() override {
    ASSERT_THAT(tokenizer_, IsOk());
    ASSERT_THAT(chat_, IsOk());
  }
  // The token ids of a problem.
  Json ids_of(const PromptWriter& prompts, const Problem& problem) const {
    const auto tokens = prompts.tokens_of(problem);
    EXPECT_THAT(tokens, IsOk());
    return tokens.ok() ? Json(*tokens) : Json();
  }

  absl::StatusOr<Tokenizer> tokenizer_;
  absl::StatusOr<ChatTemplate> chat_;
};

TEST_P(Prompts, OfTextAreThoseOfTheTokenizer) {
  const PromptWriter prompts(*tokenizer_);
  for (const Json& item : expected_of(GetParam(), "texts"))
    EXPECT_EQ(ids_of(prompts, {.prompt = item["prompt"].get<std::string>()}), item["prompt_token_ids"])
        << item["prompt"];
}

TEST_P(Prompts, OfMessagesAreThoseOfApplyChatTemplate) {
  for (const Json& item : expected_of(GetParam(), "chats")) {
    const PromptWriter prompts(*tokenizer_, *chat_, {.variables = item["variables"]});
    EXPECT_EQ(ids_of(prompts, {.messages = item["messages"]}), item["prompt_token_ids"]) << item;
  }
}

TEST_P(Prompts, OfTextAsAMessageAreThoseOfThatMessage) {
  const Json item = expected_of(GetParam(), "chats")[0];  // one message of the user's
  const PromptWriter prompts(*tokenizer_, *chat_, {.texts = true});
  EXPECT_EQ(ids_of(prompts, {.prompt = item["messages"][0]["content"].get<std::string>()}), item["prompt_token_ids"]);
}

INSTANTIATE_TEST_SUITE_P(Families, Prompts, all_families(), name_of);

}  // namespace
}  // namespace bascule::ref::test
