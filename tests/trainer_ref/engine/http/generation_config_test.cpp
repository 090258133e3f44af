#include <bascule/trainer_ref/engine/http/generation_config.h>

#include <gmock/gmock.h>

#include <fstream>

#include "cards.h"
#include <bascule/trainer_ref/engine/http/api_request.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GenerationConfig : public ::testing::Test {
 protected:
  absl::StatusOr<RequestDefaults> read(const char* text) {
    std::ofstream(file_) << text;
    return read_generation_config(file_);
  }
  const test::TempFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "generation_config.json";
};

TEST_F(GenerationConfig, HasTheKeysThatVllmTakes) {
  const auto defaults = read(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.05, "max_new_tokens": 9,
          "do_sample": false, "eos_token_id": [1, 2], "presence_penalty": 1, "transformers_version": "5.24.0"})");
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->sampling.temperature, 0.6);
  EXPECT_EQ(defaults->sampling.top_k, 20);
  EXPECT_EQ(defaults->sampling.top_p, 0.95);
  EXPECT_EQ(defaults->sampling.min_p, 0.1);
  EXPECT_EQ(defaults->sampling.adjustments.repetition_penalty, 1.05F);
  EXPECT_EQ(defaults->sampling.adjustments.presence_penalty, 0);
  EXPECT_EQ(defaults->max_tokens, 9);
  EXPECT_EQ(changes_of(*defaults),
            "temperature 0.6, top_k 20, top_p 0.95, min_p 0.1, repetition_penalty 1.05, max_tokens 9");
}

TEST_F(GenerationConfig, WithoutThemChangesNothing) {
  EXPECT_EQ(changes_of(*read(R"({"temperature": 1.0, "top_p": null, "pad_token_id": 0})")), "");
  EXPECT_FALSE(read("{}")->max_tokens);
}

// With these, transformers generates other texts, so a user should know.
TEST_F(GenerationConfig, NamesTheKeysThatOnlyTransformersApplies) {
  EXPECT_THAT(read(R"({"suppress_tokens": [5], "stop_strings": ["x"], "min_new_tokens": 4, "num_beams": 2,
                       "forced_eos_token_id": 2, "begin_suppress_tokens": [1], "typical_p": 0.9})")
                  ->unapplied,
              ElementsAre("suppress_tokens", "begin_suppress_tokens", "forced_eos_token_id", "stop_strings",
                          "min_new_tokens", "num_beams", "typical_p"));
  EXPECT_THAT(read(R"({"suppress_tokens": [], "stop_strings": null, "min_length": 0, "num_beams": 1, "typical_p": 1.0,
                       "sequence_bias": {}, "encoder_repetition_penalty": 1.0, "forced_bos_token_id": null,
                       "do_sample": true, "max_length": 20, "pad_token_id": 0, "use_cache": true})")
                  ->unapplied,
              IsEmpty());
}

TEST_F(GenerationConfig, ThatIsWrongNamesFileKeyAndValue) {
  EXPECT_THAT(std::string(read(R"({"top_p": 5})").status().message()),
              HasSubstr("generation_config.json: top_p: expected a number from 0 to 1, found 5"));
  EXPECT_THAT(std::string(read("{").status().message()), HasSubstr("generation_config.json"));
  std::filesystem::remove(file_);
  EXPECT_TRUE(absl::IsNotFound(read_generation_config(file_).status()));
}

TEST_F(GenerationConfig, HoldsForRequestsThatDoNotChoose) {
  ModelCard card = test_card();
  card.defaults = *read(R"({"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.5, "max_new_tokens": 9})");
  const CompletionRequest silent = parse_completion(R"({"prompt": [1], "top_k": null})", card, 7)->completion;
  EXPECT_EQ(silent.sampling.temperature, 0.6);
  EXPECT_EQ(silent.sampling.top_k, 20);
  EXPECT_EQ(silent.sampling.adjustments.repetition_penalty, 1.5F);
  EXPECT_EQ(silent.sampling.seed, 7U);
  EXPECT_EQ(silent.max_tokens, 16) << "the default of /v1/completions, as in vLLM";
  const CompletionRequest chosen =
      parse_completion(R"({"prompt": [1], "temperature": 1, "top_k": -1, "repetition_penalty": 1, "max_tokens": null})",
                       card, 7)
          ->completion;
  EXPECT_EQ(chosen.sampling.temperature, 1);
  EXPECT_EQ(chosen.sampling.top_k, 0);
  EXPECT_EQ(chosen.sampling.adjustments.repetition_penalty, 1);
  EXPECT_EQ(chosen.max_tokens, 9);

  const auto chat = [&card](const std::string& more) {
    return parse_chat(R"({"messages": [{"role": "user", "content": "A"}])" + more + "}", card, 7)->completion;
  };
  EXPECT_EQ(chat("").sampling.temperature, 0.6);
  EXPECT_EQ(chat("").max_tokens, 9);
  EXPECT_EQ(chat(R"(, "max_tokens": -1)").max_tokens, 64 - 7);
  card.defaults.max_tokens = 1000;
  EXPECT_EQ(chat("").max_tokens, 64 - 7) << "what fits";
}

}  // namespace
}  // namespace bascule::ref
