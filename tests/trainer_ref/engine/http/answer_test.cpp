// The form of answers.
#include <bascule/trainer_ref/engine/http/answer.h>

#include <gmock/gmock.h>

#include "cards.h"
#include <bascule/trainer_ref/engine/http/api.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Sample sample_of(std::int64_t token, double logprob) { return {token, logprob, 2, {{70, -0.1, 1}}}; }

Completion completion_of(std::vector<std::int64_t> tokens, FinishReason finish, int choices = 1) {
  Completion completion;
  for (int choice = 0; choice < choices; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->choice = static_cast<std::uint64_t>(choice);
    sequence->tokens = {65, 66};
    sequence->prompt_tokens = 2;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      sequence->tokens.push_back(tokens[i]);
      sequence->samples.push_back(sample_of(tokens[i], -0.5 - static_cast<double>(i)));
      sequence->epochs.push_back(8);
      sequence->versions.push_back(3 + i);
    }
    sequence->finish = finish;
    completion.choices.push_back(std::move(sequence));
  }
  return completion;
}

// A request's options as the parser makes them.
AnswerOptions options(const json& more, bool chat = false) {
  json body = more;
  if (chat) {
    body["messages"] = {{{"role", "user"}, {"content", "A"}}};
  } else if (!body.contains("prompt")) {
    body["prompt"] = {65, 66};
  }
  const ModelCard card = test_card();
  absl::StatusOr<ApiRequest> request = chat ? parse_chat(body.dump(), card, 0) : parse_completion(body.dump(), card, 0);
  EXPECT_TRUE(request.ok()) << request.status();
  return std::move(request->answer);
}

json whole(const json& fields, const Completion& completion, bool chat = false) {
  const ModelCard card = test_card();
  return json::parse(Answer(5, options(fields, chat), completion.choices.size(), card).whole(completion));
}

// The data of all events of a stream, token by token.
std::vector<json> streamed(const json& fields, const Completion& completion, bool chat = false) {
  const ModelCard card = test_card();
  Answer answer(5, options(fields, chat), completion.choices.size(), card);
  std::string text;
  for (std::size_t i = 0; i < completion.choices.front()->samples.size(); ++i)
    for (const auto& sequence : completion.choices) {
      const bool last = i + 1 == sequence->samples.size() && sequence->finish != FinishReason::kAbort;
      const NewToken token{sequence->choice,
                           sequence->samples[i],
                           {8, 3 + i},
                           last ? sequence->finish : FinishReason::kNone,
                           sequence->prompt_scores};
      text += answer.events(std::span(&token, 1));
    }
  text += answer.last_events(completion);
  std::vector<json> events;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find("\n\n", begin);
    EXPECT_EQ(text.substr(begin, 6), "data: ");
    const std::string data = text.substr(begin + 6, end - begin - 6);
    begin = end + 2;
    if (data == "[DONE]") {
      EXPECT_EQ(begin, text.size());
    } else {
      events.push_back(json::parse(data));
    }
  }
  return events;
}

// Its first token is 'ä's second byte; byte_tokenizer() has both as tokens 1 and 2.
TEST(Answer, GoesOnAfterThePromptsText) {
  const auto text = [](const char* prompt) {
    const ModelCard card = test_card();
    AnswerOptions options = parse_completion(cat(R"({"prompt": )", prompt, "}"), card, 0)->answer;
    const Completion completion = completion_of({2, 66}, FinishReason::kLength);
    return json::parse(Answer(5, std::move(options), 1, card).whole(completion))["choices"][0]["text"];
  };
  EXPECT_EQ(text("[65, 1]"), "\u00E4B") << "a character that the prompt cuts is whole";
  EXPECT_EQ(text("[65]"), "\uFFFD\u0042");
}

TEST(Answer, NamesTheStopStringThatIsASpecialToken) {
  const json request{{"stop", {"x", "<s>"}}, {"stop_token_ids", {67}}};
  const auto stop_reason = [&](std::int64_t end) {
    return whole(request, completion_of({66, end}, FinishReason::kStop))["choices"][0]["stop_reason"];
  };
  EXPECT_EQ(stop_reason(kStart), "<s>");
  EXPECT_EQ(stop_reason(67), 67);
  EXPECT_EQ(stop_reason(kEnd), nullptr);
}

TEST(Answer, HasOpenAisShape) {
  const json answer = whole({{"prompt", {{65, 66}, {65, 66}}}}, completion_of({65, 66, kEnd}, FinishReason::kStop, 2));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["id"], "cmpl-5");
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "AB") << "without the end";
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], nullptr) << "the model's own end";
  EXPECT_EQ(choice["logprobs"], nullptr) << "they were not requested";
  EXPECT_FALSE(choice.contains("token_ids"));
  EXPECT_EQ(answer["usage"], (json{{"prompt_tokens", 4}, {"completion_tokens", 6}, {"total_tokens", 10}}));
}

TEST(Answer, APromptCountsOnceWhateverNIs) {
  const json answer = whole({{"n", 2}}, completion_of({65}, FinishReason::kLength, 2));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2);
}

// The third of four completions is the likeliest by its sum, the first comes next.
TEST(Answer, BestOfReturnsTheLikeliestOnesFirst) {
  Completion completion = completion_of({65, 66}, FinishReason::kLength, 4);
  const std::vector<std::vector<std::int64_t>> tokens{{66, 66}, {67, 67}, {68, 68}, {69, 69}};
  const std::vector<std::vector<double>> logprobs{{-1, -1}, {-0.1, -3}, {-0.5, -0.5}, {-1, -1}};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t t = 0; t < 2; ++t) completion.choices[i]->samples[t] = {tokens[i][t], logprobs[i][t]};
  const json answer = whole({{"n", 2}, {"best_of", 4}, {"return_token_ids", true}}, completion);
  ASSERT_EQ(answer["choices"].size(), 2U);
  EXPECT_EQ(answer["choices"][0]["text"], "DD");
  EXPECT_EQ(answer["choices"][0]["index"], 0);
  EXPECT_EQ(answer["choices"][1]["text"], "BB") << "the first of equals";
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["usage"], (json{{"prompt_tokens", 2}, {"completion_tokens", 8}, {"total_tokens", 10}}))
      << "all that were made count";
}

TEST(Answer, NoStopStringEndsWithinMinTokens) {
  const json fields{{"stop", {"AA", "BC"}}, {"min_tokens", 3}};
  const json choice = whole(fields, completion_of({65, 65, 66, 67}, FinishReason::kStop))["choices"][0];
  EXPECT_EQ(choice["text"], "AA") << "BC begins within them and ends after them";
  EXPECT_EQ(choice["stop_reason"], "BC");
  std::string text;
  for (const json& event : streamed(fields, completion_of({65, 65, 66, 67}, FinishReason::kStop)))
    text += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, "AA");
}

TEST(Answer, TellsTokensWithTheWeightsThatMadeThem) {
  const json choice = whole({{"return_token_ids", true}}, completion_of({65, kEnd}, FinishReason::kStop))["choices"][0];
  EXPECT_EQ(choice["token_ids"], (json{65, 99}));
  EXPECT_EQ(choice["prompt_token_ids"], (json{65, 66}));
  EXPECT_EQ(choice["epochs"], (json{8, 8}));
  EXPECT_EQ(choice["versions"], (json{3, 4}));
}

TEST(Answer, TellsLogprobsInOpenAisLists) {
  const json choice = whole({{"logprobs", 1}}, completion_of({67, 1, 2}, FinishReason::kLength))["choices"][0];
  const json& lists = choice["logprobs"];
  EXPECT_EQ(choice["text"], "C\u00E4");
  EXPECT_EQ(lists["tokens"], (json{"C", "\uFFFD", "\uFFFD"})) << "two tokens make one character";
  EXPECT_EQ(lists["token_logprobs"], (json{-0.5, -1.5, -2.5}));
  EXPECT_EQ(lists["top_logprobs"][0], (json{{"F", -0.1}, {"C", -0.5}})) << "the likeliest, and the token itself";
  EXPECT_EQ(lists["text_offset"], (json{0, 1, 1}));
  EXPECT_EQ(
      whole({{"logprobs", 0}}, completion_of({67}, FinishReason::kLength))["choices"][0]["logprobs"]["top_logprobs"],
      json::array({{{"C", -0.5}}}))
      << "as in vLLM";
}

TEST(Answer, EchoBeginsWithThePromptAndItsLogprobs) {
  Completion completion = completion_of({67}, FinishReason::kLength);
  completion.choices[0]->prompt_scores = std::make_shared<PromptScores>(PromptScores{1, {sample_of(66, -3)}});
  const json choice = whole({{"echo", true}, {"logprobs", 1}}, completion)["choices"][0];
  EXPECT_EQ(choice["text"], "ABC");
  EXPECT_EQ(choice["logprobs"]["tokens"], (json{"A", "B", "C"}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], (json{nullptr, -3.0, -0.5}));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0], nullptr);
  EXPECT_EQ(choice["logprobs"]["text_offset"], (json{0, 1, 2}));
  const std::vector<json> events = streamed({{"echo", true}, {"logprobs", 1}}, completion);
  EXPECT_EQ(events[0]["choices"][0]["text"], "ABC");
  EXPECT_EQ(events[0]["choices"][0]["logprobs"], choice["logprobs"]);
}

TEST(Answer, TellsAPromptsLogprobsAsVllmDoes) {
  Completion completion = completion_of({67}, FinishReason::kLength);
  completion.choices[0]->prompt_scores = std::make_shared<PromptScores>(PromptScores{1, {sample_of(66, -3)}});
  const json told = whole({{"prompt_logprobs", 1}}, completion)["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0], nullptr);
  EXPECT_EQ(told[1]["66"], (json{{"logprob", -3.0}, {"rank", 2}, {"decoded_token", "B"}}));
  EXPECT_EQ(told[1]["70"], (json{{"logprob", -0.1}, {"rank", 1}, {"decoded_token", "F"}}));
}

TEST(Answer, EndsBeforeAStopString) {
  const Completion completion = completion_of({65, 66, 67, 68}, FinishReason::kStop);
  const json choice = whole({{"stop", "CD"}}, completion)["choices"][0];
  EXPECT_EQ(choice["text"], "AB");
  EXPECT_EQ(choice["stop_reason"], "CD");
  EXPECT_EQ(whole({{"stop", "CD"}, {"include_stop_str_in_output", true}}, completion)["choices"][0]["text"], "ABCD");
  const json by_token = whole({{"stop_token_ids", {68}}, {"stop", "X"}}, completion)["choices"][0];
  EXPECT_EQ(by_token["text"], "ABC");
  EXPECT_EQ(by_token["stop_reason"], 68);
}

TEST(Answer, AStopStringThatOnlyTheRestOfTheTextCompletesEndsItAsWell) {
  const Completion cut = completion_of({65, 66, 1}, FinishReason::kLength);  // the last is half a character
  const json fields{{"stop", "B\uFFFD"}, {"logprobs", 0}};
  const json choice = whole(fields, cut)["choices"][0];
  EXPECT_EQ(choice["text"], "A");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "B\uFFFD");
  const json last = streamed(fields, cut).back()["choices"][0];
  EXPECT_EQ(last["finish_reason"], "stop");
  EXPECT_EQ(last["stop_reason"], "B\uFFFD");
  EXPECT_EQ(whole({{"stop", "B\uFFFD"}}, cut, true)["choices"][0]["finish_reason"], "stop");

  const json by_token = whole(fields, completion_of({65, 66, 1, kEnd}, FinishReason::kStop))["choices"][0];
  EXPECT_EQ(by_token["text"], "A");
  EXPECT_EQ(by_token["stop_reason"], "B\uFFFD") << "which cut the text before the end";
  EXPECT_EQ(whole({{"stop", "BC"}}, cut)["choices"][0]["stop_reason"], nullptr);
}

TEST(Answer, OfAChatHasOpenAisShape) {
  const json answer =
      whole({{"logprobs", true}, {"top_logprobs", 1}}, completion_of({65, 1}, FinishReason::kLength), true);
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["id"], "chatcmpl-5");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "A\uFFFD");
  const json& content = answer["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0], (json{{"token", "A"},
                              {"logprob", -0.5},
                              {"bytes", {65}},
                              {"top_logprobs", {{{"token", "F"}, {"logprob", -0.1}, {"bytes", {70}}}}}}));
  EXPECT_EQ(content[1]["token"], "\uFFFD") << "half a character";
  EXPECT_EQ(content[1]["bytes"], (json{0xC3}));
}

TEST(Answer, AStreamHasNoCutCharactersAndHoldsBackWhatMayBeAStopString) {
  const std::vector<json> events =
      streamed({{"stop", "BC"}}, completion_of({65, 1, 2, 66, 66, 67}, FinishReason::kStop));
  std::vector<std::string> texts;
  for (const json& each : events) texts.push_back(each["choices"][0]["text"]);
  EXPECT_THAT(texts, ::testing::ElementsAre("A", "\u00E4", "B", ""));
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], nullptr);
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[3]["choices"][0]["stop_reason"], "BC");
  EXPECT_FALSE(events[3].contains("usage"));
}

TEST(Answer, AStreamOfAChatBeginsWithTheRoleAndEndsWithTheUsage) {
  const std::vector<json> events = streamed({{"stream", true}, {"stream_options", {{"include_usage", true}}}, {"n", 2}},
                                            completion_of({65, 66}, FinishReason::kLength, 2), true);
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(events[0]["usage"], nullptr);
  EXPECT_EQ(events[1]["choices"][0]["delta"], (json{{"content", "A"}}));
  EXPECT_EQ(events[2]["choices"][0]["index"], 1);
  EXPECT_EQ(events[5]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[6]["choices"], json::array());
  EXPECT_EQ(events[6]["usage"]["completion_tokens"], 4);
}

TEST(Answer, AStreamThatWasAbortedSaysSo) {
  const std::vector<json> events = streamed(json::object(), completion_of({65}, FinishReason::kAbort));
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "abort");
}

TEST(TokenizerInfo, NamesTheTokensThatBeginAndEndATextWhereThereAreAny) {
  ModelCard card = test_card();
  EXPECT_EQ(json::parse(tokenizer_info_json(card)),
            (json{{"bos_token", nullptr}, {"eos_token", "<end>"}, {"pad_token", nullptr}, {"model_max_length", 64}}));
  card.tokenizer = byte_tokenizer(/*adds_start=*/true);
  EXPECT_EQ(json::parse(tokenizer_info_json(card))["bos_token"], "<s>");
  card.special_tokens = {{"bos_token", "<b>"}, {"eos_token", "<turn>"}, {"pad_token", "<pad>"}};
  EXPECT_EQ(json::parse(tokenizer_info_json(card)),
            (json{{"bos_token", "<b>"}, {"eos_token", "<turn>"}, {"pad_token", "<pad>"}, {"model_max_length", 64}}))
      << "as the tokenizer's files name them";
}

TEST(HeaderList, IsBoundedAndEscaped) {
  EXPECT_EQ(header_list(std::vector<std::string>{"a_b", "c d\r\n"}), "a_b, c%20d%0D%0A");
  EXPECT_EQ(header_list(std::vector<std::string>{std::string(50, 'x')}), std::string(40, 'x') + "...");
  EXPECT_EQ(header_list(std::vector<std::string>{"", "a"}), "\"\", a");
  EXPECT_THAT(header_list(std::vector<std::string>(20, "f")), ::testing::EndsWith("f, and 4 more"));
}

TEST(Metrics, ArePrometheusText) {
  EngineStats stats;
  stats.running = 3;
  EXPECT_THAT(metrics_text(stats, ModelCard{}),
              HasSubstr("# TYPE bascule_engine_running gauge\nbascule_engine_running 3\n"));
}

}  // namespace
}  // namespace bascule::ref
