#include <bascule/trainer_ref/engine/api.h>

#include <gmock/gmock.h>

#include "nlohmann/json.hpp"

namespace bascule::ref {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelCard card() {
  ModelCard card;
  card.id = "tiny";
  card.vocab_size = 100;
  card.eos_token_ids = {99};
  card.max_model_len = 64;
  card.max_batch = 8;
  card.max_choices = 12;
  card.worker = "engine-0";
  card.encode = [](std::string_view text) -> absl::StatusOr<std::vector<std::int64_t>> {
    return std::vector<std::int64_t>(text.begin(), text.end());
  };
  card.decode = [](std::span<const std::int64_t> ids) { return std::string(ids.begin(), ids.end()); };
  return card;
}

std::string refusal(std::string_view text, const ModelCard& model = card()) {
  const absl::StatusOr<CompletionRequest> request = parse_completion(text, model, 0);
  return request.ok() ? "it was taken" : std::string(request.status().message());
}

TEST(ParseCompletion, TakesTextTokenIdsAndListsOfThem) {
  EXPECT_THAT(parse_completion(R"({"prompt": "AB"})", card(), 0)->prompts, ElementsAre(ElementsAre(65, 66)));
  EXPECT_THAT(parse_completion(R"({"prompt": ["A", "B"]})", card(), 0)->prompts,
              ElementsAre(ElementsAre(65), ElementsAre(66)));
  EXPECT_THAT(parse_completion(R"({"prompt": [1, 2]})", card(), 0)->prompts, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(parse_completion(R"({"prompt": [[1, 2], [3]]})", card(), 0)->prompts,
              ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
}

TEST(ParseCompletion, TextWithATokenBeyondTheModelsIsRefused) {
  ModelCard small = card();
  small.vocab_size = 70;
  EXPECT_THAT(refusal(R"({"prompt": ["AB", "AG"]})", small),
              HasSubstr("its text has token 71 of the tokenizer, and the model's end at 69"));
}

TEST(ParseCompletion, ReadsEveryField) {
  const auto request = parse_completion(
      R"({"model": "tiny", "prompt": [1], "max_tokens": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 7,
          "n": 4, "stop_token_ids": [12, 3], "logprobs": 1, "user": "me", "stream": false})",
      card(), 0);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_EQ(request->sampling.temperature, 0.5);
  EXPECT_EQ(request->sampling.top_k, 3);
  EXPECT_EQ(request->sampling.top_p, 0.9);
  EXPECT_EQ(request->sampling.seed, 7U);
  EXPECT_EQ(request->n, 4);
  EXPECT_THAT(request->stop_token_ids, ElementsAre(3, 12, 99));
}

TEST(ParseCompletion, HasOpenAisDefaults) {
  const auto request = parse_completion(R"({"prompt": [1], "seed": null})", card(), 42);
  EXPECT_EQ(request->max_tokens, 16);
  EXPECT_EQ(request->sampling.temperature, 1);
  EXPECT_EQ(request->n, 1);
  EXPECT_EQ(request->sampling.seed, 42U) << "none was given";
  EXPECT_THAT(request->stop_token_ids, ElementsAre(99));
}

TEST(ParseCompletion, IgnoresTheEndWhereAsked) {
  EXPECT_THAT(parse_completion(R"({"prompt": [1], "ignore_eos": true})", card(), 0)->stop_token_ids, ElementsAre());
}

TEST(ParseCompletion, NamesAFieldThatItDoesNotKnowOrSupport) {
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_token": 5})"), HasSubstr("\"max_token\"; did you mean max_tokens?"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "stream": true})"), HasSubstr("\"stream\" is not supported"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "echo": true})"), HasSubstr("\"echo\" is not supported"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "stop": ["x"]})"), HasSubstr("\"stop\" is not supported"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "logprobs": 5})"), HasSubstr("logprobs: expected"));
}

TEST(ParseCompletion, NamesWhatIsWrongWithAValue) {
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 0})"),
              HasSubstr("max_tokens: expected an integer from 1 to 64"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": "5"})"), HasSubstr("found \"5\""));
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 1e3})"), HasSubstr("max_tokens: expected an integer"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 99999999999999999999})"), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "temperature": -1})"), HasSubstr("temperature: expected a number from 0"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "top_p": 1.5})"), HasSubstr("top_p: expected a number from 0 to 1"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "n": 9})"), HasSubstr("n: expected an integer from 1 to 8"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "seed": -1})"), HasSubstr("seed"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "ignore_eos": 1})"), HasSubstr("ignore_eos: expected true or false"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "stop_token_ids": [100]})"), HasSubstr("stop_token_ids"));
}

TEST(ParseCompletion, NamesWhatIsWrongWithAPrompt) {
  EXPECT_THAT(refusal("{}"), HasSubstr("prompt is missing"));
  EXPECT_THAT(refusal(R"({"prompt": []})"), HasSubstr("found none"));
  EXPECT_THAT(refusal(R"({"prompt": [[1], []]})"), HasSubstr("found none"));
  EXPECT_THAT(refusal(R"({"prompt": [100]})"), HasSubstr("from 0 to 99, found 100"));
  EXPECT_THAT(refusal(R"({"prompt": [-1]})"), HasSubstr("found -1"));
  EXPECT_THAT(refusal(R"({"prompt": [1, "a"]})"), HasSubstr("found \"a\""));
  EXPECT_THAT(refusal(R"({"prompt": {"a": 1}})"), HasSubstr("expected text, token ids"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 64})"), HasSubstr("at most 64 together"));
  EXPECT_THAT(refusal(R"({"prompt": [[1], [2]], "n": 7})"), HasSubstr("make 14 completions: expected at most 12"));
}

TEST(ParseCompletion, AsksForTokenIdsWhereTextCannotBeRead) {
  ModelCard model = card();
  model.encode = nullptr;
  model.no_text = absl::UnimplementedError("decoder ByteLevel");
  EXPECT_THAT(refusal(R"({"prompt": "A"})", model), HasSubstr("(decoder ByteLevel); send token ids"));
}

TEST(ParseCompletion, RefusesWhatIsNoJsonObject) {
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("deeper than"));
}

TEST(ParseCompletion, AnotherModelIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(parse_completion(R"({"prompt": [1], "model": "huge"})", card(), 0).status()));
}

TEST(CompletionJson, HasOpenAisShapeAndAVersionForEachToken) {
  Completion completion;
  for (std::uint64_t choice : {0, 1}) {
    auto sequence = std::make_unique<Sequence>();
    sequence->choice = choice;
    sequence->tokens = {1, 2, 65, 66, 99};
    sequence->prompt_tokens = 2;
    sequence->logprobs = {-0.5, -0.25, -1};
    sequence->epochs = {8, 8, 9};
    sequence->versions = {3, 3, 4};
    sequence->finish = choice == 0 ? FinishReason::kStop : FinishReason::kLength;
    completion.choices.push_back(std::move(sequence));
  }
  const json answer = json::parse(completion_json(5, completion, 2, card()));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "AB") << "without the end";
  EXPECT_EQ(answer["choices"][1]["text"], "ABc");
  EXPECT_EQ(answer["choices"][0]["token_ids"], (json{65, 66, 99}));
  EXPECT_EQ(answer["choices"][0]["logprobs"]["token_logprobs"], (json{-0.5, -0.25, -1.0}));
  EXPECT_EQ(answer["choices"][0]["epochs"], (json{8, 8, 9}));
  EXPECT_EQ(answer["choices"][0]["versions"], (json{3, 3, 4}));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2) << "a prompt counts once";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6);
}

TEST(Metrics, ArePrometheusText) {
  EngineStats stats;
  stats.running = 3;
  EXPECT_THAT(metrics_text(stats, ModelCard{}),
              HasSubstr("# TYPE bascule_engine_running gauge\nbascule_engine_running 3\n"));
}

}  // namespace
}  // namespace bascule::ref
