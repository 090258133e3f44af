// Parsing of requests.
#include <bascule/trainer_ref/engine/http/api_request.h>

#include <gmock/gmock.h>

#include <limits>

#include "cards.h"
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelCard card() { return test_card(); }

std::string refusal(std::string_view text, const ModelCard& model = card()) {
  const absl::StatusOr<ApiRequest> request = parse_completion(text, model, 0);
  return request.ok() ? "it was taken" : std::string(request.status().message());
}

TEST(ParseCompletion, TakesTextTokenIdsAndListsOfThem) {
  EXPECT_THAT(parse_completion(R"({"prompt": "AB"})", card(), 0)->completion.prompts, ElementsAre(ElementsAre(65, 66)));
  EXPECT_THAT(parse_completion(R"({"prompt": ["A", "B"]})", card(), 0)->completion.prompts,
              ElementsAre(ElementsAre(65), ElementsAre(66)));
  EXPECT_THAT(parse_completion(R"({"prompt": [1, 2]})", card(), 0)->completion.prompts, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(parse_completion(R"({"prompt": [[1, 2], [3]]})", card(), 0)->completion.prompts,
              ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
}

TEST(ParseCompletion, TextWithATokenBeyondTheModelsIsRefused) {
  ModelCard small = card();
  small.vocab_size = 70;
  EXPECT_THAT(refusal(R"({"prompt": ["AB", "AG"]})", small),
              HasSubstr("its text has the tokenizer's token 71, and the model's tokens end at 69"));
}

TEST(ParseCompletion, TextThatCannotFitIsRefusedWithItsSize) {
  const std::string text(1000, 'A');
  EXPECT_EQ(refusal(json{{"prompt", text}}.dump()),
            "prompt: the text of 1000 bytes has at least 1000 tokens: this model's maximum context length is 64 "
            "tokens (--max-model-len)");
  EXPECT_EQ(refusal(json{{"prompt", text.substr(0, 100)}}.dump()),
            "prompt: the text of 100 bytes has at least 100 tokens: this model's maximum context length is 64 "
            "tokens (--max-model-len)");
  const auto chat = parse_chat(json{{"messages", {{{"role", "user"}, {"content", text}}}}}.dump(), card(), 0);
  EXPECT_THAT(std::string(chat.status().message()),
              AllOf(HasSubstr("bytes has at least"), HasSubstr("this model's maximum context length is 64 tokens")));
  EXPECT_EQ(parse_tokenize(json{{"prompt", text}}.dump(), card())->tokens.size(), 1000U) << "which only counts";
}

TEST(ParseCompletion, StopsWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(parse_completion(R"({"prompt": "AB"})", card(), 0, stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(ParseCompletion, ReadsEveryField) {
  const auto request = parse_completion(
      R"({"model": "tiny", "prompt": [1], "max_tokens": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 7,
          "n": 4, "stop_token_ids": [12, 3], "logprobs": 1, "user": "me", "stream": false})",
      card(), 0);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->completion.max_tokens, 5);
  EXPECT_EQ(request->completion.sampling.temperature, 0.5);
  EXPECT_EQ(request->completion.sampling.top_k, 3);
  EXPECT_EQ(request->completion.sampling.top_p, 0.9);
  EXPECT_EQ(request->completion.sampling.seed, 7U);
  EXPECT_EQ(request->completion.n, 4);
  EXPECT_THAT(request->completion.stop_token_ids, ElementsAre(3, 12, 99));
}

TEST(ParseCompletion, HasOpenAisDefaults) {
  const auto request = parse_completion(R"({"prompt": [1], "seed": null})", card(), 42);
  EXPECT_EQ(request->completion.max_tokens, 16);
  EXPECT_EQ(request->completion.sampling.temperature, 1);
  EXPECT_EQ(request->completion.n, 1);
  EXPECT_EQ(request->completion.sampling.seed, 42U) << "none was given";
  EXPECT_THAT(request->completion.stop_token_ids, ElementsAre(99));
}

TEST(ParseCompletion, IgnoresTheEndWhereAsked) {
  EXPECT_THAT(parse_completion(R"({"prompt": [1], "ignore_eos": true})", card(), 0)->completion.stop_token_ids,
              ElementsAre());
}

TEST(ParseCompletion, ReadsEveryFieldOfTheAnswer) {
  const auto request = parse_completion(
      R"({"prompt": "A", "stream": true, "stream_options": {"include_usage": true}, "echo": true, "logprobs": 3,
          "logprobs_mode": "processed_logprobs", "stop": ["x", "yz"], "include_stop_str_in_output": true, "min_p": 0.2,
          "top_k": -1, "return_token_ids": true, "skip_special_tokens": false, "max_tokens": 0})",
      card(), 0);
  ASSERT_TRUE(request.ok()) << request.status();
  const AnswerOptions& answer = request->answer;
  EXPECT_TRUE(answer.stream && answer.include_usage && answer.echo && answer.logprobs && answer.include_stop &&
              answer.return_token_ids && answer.with_special_tokens);
  EXPECT_EQ(answer.logprobs, 3);
  EXPECT_THAT(*answer.stop, ElementsAre("x", "yz"));
  EXPECT_EQ(request->completion.sampling.logprobs, LogprobsMode::kProcessed);
  EXPECT_EQ(request->completion.sampling.min_p, 0.2);
  EXPECT_EQ(request->completion.sampling.top_k, 0);
  EXPECT_EQ(request->completion.sampling.top_logprobs, 3);
  EXPECT_EQ(request->completion.prompt_logprobs, 3) << "which echo returns";
  EXPECT_EQ(request->completion.max_tokens, 0);
  EXPECT_THAT(request->ignored, ElementsAre());
}

TEST(ParseCompletion, LogprobsAreRawUnlessTheServerOrTheRequestSaysOtherwise) {
  EXPECT_EQ(parse_completion(R"({"prompt": [1]})", card(), 0)->completion.sampling.logprobs, LogprobsMode::kRaw);
  ModelCard trainers = card();
  trainers.logprobs = LogprobsMode::kProcessed;
  EXPECT_EQ(parse_completion(R"({"prompt": [1]})", trainers, 0)->completion.sampling.logprobs,
            LogprobsMode::kProcessed);
  EXPECT_EQ(parse_completion(R"({"prompt": [1], "logprobs_mode": "raw"})", trainers, 0)->completion.sampling.logprobs,
            LogprobsMode::kRaw);
  EXPECT_THAT(refusal(R"({"prompt": [1], "logprobs_mode": "warm"})"), HasSubstr("logprobs_mode: expected \"raw\""));
}

TEST(ParseCompletion, FieldsThatNothingKnowsAreIgnoredAndNamed) {
  const auto request = parse_completion(R"({"prompt": [1], "max_token": 5, "user": "me", "x": null})", card(), 0);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->ignored, ElementsAre("max_token", "x"));
  const auto inside = parse_completion(
      R"({"prompt": [1], "stream_options": {"include_usage": true, "continuous_usage_stats": true}})", card(), 0);
  EXPECT_THAT(inside->ignored, ElementsAre("stream_options.continuous_usage_stats"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "stream_options": 5})"), HasSubstr("stream_options: expected an object"));
}

TEST(ParseCompletion, FieldsThatAreNotImplementedAreTakenWhereTheyAskForNothing) {
  EXPECT_EQ(refusal(R"({"prompt": [1], "presence_penalty": 0.0, "frequency_penalty": 0, "repetition_penalty": 1.0,
                        "logit_bias": {}, "best_of": 2, "n": 2, "suffix": "", "response_format": {"type": "text"},
                        "stop": null, "stream": false, "guided_json": null, "metadata": {"a": "b"}, "store": true})"),
            "it was taken");
  EXPECT_THAT(refusal(R"({"prompt": [1], "suffix": "x"})"), HasSubstr("\"suffix\" is not supported"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "response_format": {"type": "json_object"}})"), HasSubstr("response_format"));
}

TEST(ParseCompletion, ReadsWhatChangesLogits) {
  const auto request = parse_completion(
      R"({"prompt": [1], "repetition_penalty": 1.25, "presence_penalty": -0.5, "frequency_penalty": 2, "min_tokens": 3,
          "logit_bias": {"7": 1000, "5": -1.5, "99": 4, "6": 0}, "stop_token_ids": [7]})",
      card(), 0);
  ASSERT_TRUE(request.ok()) << request.status();
  const LogitAdjustments& adjustments = request->completion.sampling.adjustments;
  EXPECT_EQ(adjustments.repetition_penalty, 1.25F);
  EXPECT_EQ(adjustments.presence_penalty, -0.5F);
  EXPECT_EQ(adjustments.frequency_penalty, 2);
  const float never = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(adjustments.biases(2), ElementsAre(TokenBias{5, -1.5F}, TokenBias{7, never}, TokenBias{99, never}));
  EXPECT_THAT(adjustments.biases(3), ElementsAre(TokenBias{5, -1.5F}, TokenBias{7, 100}, TokenBias{99, 4}))
      << "cut to 100, as in vLLM";
  EXPECT_EQ(request->answer.min_tokens, 3);
  EXPECT_THAT(request->ignored, ElementsAre());
}

TEST(ParseCompletion, TheModelsEndComesNotBeforeMinTokensAlsoIfItEndsNothing) {
  const auto request = parse_completion(R"({"prompt": [1], "min_tokens": 1, "ignore_eos": true})", card(), 0);
  EXPECT_EQ(request->completion.sampling.adjustments.biases(0)[0].token, kEnd);
  EXPECT_FALSE(request->completion.sampling.adjustments.any(1));
}

TEST(ParseCompletion, RequestsThatChangeNoLogitsHaveNoAdjustments) {
  for (const char* fields :
       {"", R"(, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {"5": 0})",
        R"(, "min_tokens": 0, "logit_bias": null)"})
    EXPECT_FALSE(
        parse_completion(cat(R"({"prompt": [1])", fields, "}"), card(), 0)->completion.sampling.adjustments.any(0))
        << fields;
}

TEST(ParseCompletion, BoundsWhatMayChangeLogits) {
  EXPECT_THAT(refusal(R"({"prompt": [1], "repetition_penalty": 0})"),
              HasSubstr("repetition_penalty: expected a number from 0.01 to 100, found 0"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "presence_penalty": 2.5})"), HasSubstr("a number from -2 to 2, found 2.5"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "frequency_penalty": "1"})"), HasSubstr("found \"1\""));
  for (const char* bias : {R"([5])", R"({"100": 1})", R"({"-1": 1})", R"({"a": 1})", R"({"5 ": 1})", R"({"5": "1"})"})
    EXPECT_THAT(refusal(cat(R"({"prompt": [1], "logit_bias": )", bias, "}")),
                HasSubstr("logit_bias: expected an object of up to 1024 numbers, with token ids from \"0\" to \"99\""))
        << bias;
  EXPECT_THAT(refusal(R"({"prompt": [1], "min_tokens": 17})"), HasSubstr("min_tokens: expected at most max_tokens"));
  EXPECT_THAT(refusal(R"({"prompt": [[1], [1, 2, 3]], "max_tokens": -1, "min_tokens": 62})"),
              HasSubstr("what fits after the prompt, 61, found 62"));
  json all{{"prompt", {1}}, {"min_tokens", 1}};
  for (int id = 0; id < 100; ++id) all["stop_token_ids"].push_back(id);
  EXPECT_THAT(refusal(all.dump()), HasSubstr("leaves none for a completion"));
}

TEST(ParseCompletion, MaxTokensMayBeAllThatFit) {
  for (const char* all : {"-1", "null"}) {
    const auto request = parse_completion(cat(R"({"prompt": [[1], [1, 2, 3]], "max_tokens": )", all, "}"), card(), 0);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->completion.max_tokens, 64);
    EXPECT_EQ(request->completion.max_length, 64);
  }
  const json full{{"prompt", json(64, 1)}, {"max_tokens", -1}};
  EXPECT_THAT(refusal(full.dump()),
              HasSubstr("prompt 0 has 64 tokens and max_tokens is 1: this model's maximum context length is 64"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": -2})"), HasSubstr("from 1 to 64"));
}

TEST(ParseCompletion, BestOfMakesMoreCompletionsThanItReturns) {
  const auto request = parse_completion(R"({"prompt": [1], "best_of": 5, "n": 2})", card(), 0);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->completion.n, 5);
  EXPECT_EQ(request->answer.n, 5);
  EXPECT_EQ(request->answer.best, 2);
  EXPECT_EQ(parse_completion(R"({"prompt": [1], "best_of": 2, "n": 2, "stream": true})", card(), 0)->answer.best, 0);
  EXPECT_THAT(refusal(R"({"prompt": [1], "best_of": 1, "n": 2})"),
              HasSubstr("best_of: expected an integer from 2 to 8"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "best_of": 9})"), HasSubstr("from 1 to 8"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "best_of": 3, "stream": true})"),
              HasSubstr("best_of: not above n in a stream"));
  EXPECT_THAT(refusal(R"({"prompt": [[1], [2]], "best_of": 7})"), HasSubstr("2 prompts with best_of = 7 make 14"));
}

TEST(ParseCompletion, BoundsWhatStopAndLogprobsMayAsk) {
  EXPECT_THAT(refusal(R"({"prompt": [1], "stop": ""})"), HasSubstr("stop: expected a text, or a list of up to 16"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "stop": [1]})"), HasSubstr("stop: expected"));
  EXPECT_THAT(refusal(json{{"prompt", {1}}, {"stop", json(17, "x")}}.dump()), HasSubstr("stop: expected"));
  EXPECT_THAT(refusal(json{{"prompt", {1}}, {"stop", std::string(257, 'x')}}.dump()), HasSubstr("stop: expected"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "logprobs": 21})"), HasSubstr("logprobs: expected an integer from 0 to 20"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "prompt_logprobs": 2, "stream": true})"), HasSubstr("not in a stream"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 0})"), HasSubstr("from 1 to 64")) << "nothing is asked for";
  EXPECT_THAT(refusal(R"({"prompt": [1], "top_k": -2})"), HasSubstr("top_k: expected an integer from -1"));
  ModelCard model = card();
  model.tokenizer.reset();
  model.no_text = absl::UnimplementedError("decoder Strange");
  EXPECT_THAT(refusal(R"({"prompt": [1], "stop": "x"})", model),
              HasSubstr("stop: this model's text cannot be read here (decoder Strange)"));
  model.max_model_len = 100000;
  json many{{"prompt", json(60000, 1)}, {"echo", true}, {"logprobs", 20}};
  EXPECT_THAT(refusal(many.dump(), model), HasSubstr("expected at most 1048576"));
}

TEST(ParseCompletion, SpecialTokensAreAddedToTextUnlessItSaysOtherwise) {
  ModelCard model = card();
  model.tokenizer = byte_tokenizer(/*adds_start=*/true);
  EXPECT_THAT(parse_completion(R"({"prompt": "A"})", model, 0)->completion.prompts, ElementsAre(ElementsAre(98, 65)));
  EXPECT_THAT(parse_completion(R"({"prompt": "A", "add_special_tokens": false})", model, 0)->completion.prompts,
              ElementsAre(ElementsAre(65)));
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
  EXPECT_THAT(refusal(R"({"prompt": [1], "seed": 1.5})"), HasSubstr("seed"));
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
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 64})"),
              HasSubstr("max_tokens is 64: this model's maximum context length is 64"));
  EXPECT_THAT(refusal(R"({"prompt": [[1], [2]], "n": 7})"), HasSubstr("make 14 completions: expected at most 12"));
}

TEST(ParseCompletion, AsksForTokenIdsWhereTextCannotBeRead) {
  ModelCard model = card();
  model.tokenizer.reset();
  model.no_text = absl::UnimplementedError("decoder ByteLevel");
  EXPECT_THAT(refusal(R"({"prompt": "A"})", model), HasSubstr("(decoder ByteLevel); send token ids"));
}

TEST(ParseCompletion, AWholeNumberMayBeWrittenWithAPoint) {
  const CompletionRequest request =
      parse_completion(R"({"prompt": [1], "max_tokens": 4.0, "n": 2.0, "seed": 7e0, "top_k": -1.0})", card(), 0)
          ->completion;
  EXPECT_EQ(request.max_tokens, 4);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 4.5})"), HasSubstr("an integer from 1 to 64, found 4.5"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "max_tokens": 0.0})"), HasSubstr("found 0.0"));
  EXPECT_THAT(refusal(R"({"prompt": [1], "seed": 1e16})"), HasSubstr("seed")) << "its last digits are not sure";
}

// As special tokens are not in the text, no search there would find them.
TEST(ParseCompletion, AStopStringThatIsASpecialTokenStopsAtTheToken) {
  const auto parsed = [](const char* more) {
    return *parse_completion(cat(R"({"prompt": [1], "ignore_eos": true, "stop": ["x", "<s>", "<end>"])", more, "}"),
                             card(), 0);
  };
  EXPECT_THAT(parse_completion(R"({"prompt": [1], "stop": "<s>"})", card(), 0)->completion.stop_token_ids,
              ElementsAre(kStart, kEnd));
  EXPECT_THAT(parsed("").completion.stop_token_ids, ElementsAre(kStart, kEnd));
  EXPECT_THAT(parsed("").answer.asked_stop_ids, ElementsAre(kStart, kEnd)) << "for stop_reason";
  EXPECT_THAT(*parsed("").answer.stop, ElementsAre("x", "<s>", "<end>")) << "a text may also write them";
  EXPECT_TRUE(parsed(R"(, "skip_special_tokens": false)").completion.stop_token_ids.empty());
}

TEST(ParseCompletion, RefusesWhatIsNoJsonObject) {
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"prompt\": \"\xff\"}"), HasSubstr("not valid JSON")) << "it is not UTF-8";
  EXPECT_THAT(refusal("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("deeper than"));
}

TEST(ParseCompletion, AnotherModelIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(parse_completion(R"({"prompt": [1], "model": "huge"})", card(), 0).status()));
}

std::string chat_refusal(std::string_view text, const ModelCard& model = card()) {
  const absl::StatusOr<ApiRequest> request = parse_chat(text, model, 0);
  return request.ok() ? "it was taken" : std::string(request.status().message());
}

std::string text_of(std::string_view text, const ModelCard& model = card()) {
  const absl::StatusOr<ApiRequest> request = parse_chat(text, model, 0);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? model.tokenizer->decode(request->completion.prompts.front(), true) : "";
}

TEST(ParseChat, MessagesGoThroughTheModelsTemplate) {
  EXPECT_EQ(text_of(R"({"messages": [{"role": "system", "content": "HI"}, {"role": "user", "content": "YO"}]})"),
            "<s>S:HI U:YO A:");
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "A"}]}]})"), "<s>U:A A:");
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "content": "A"}], "add_generation_prompt": false})"), "<s>U:A ");
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "content": "A"}], "tools": [{"type": "function"}]})"),
            "<s>U:A T1 A:");
  ModelCard reasoning = card();
  reasoning.chat = *ChatTemplate::parse("{{ reasoning_effort | default('NONE') }}");
  const std::string effort = R"({"messages": [{"role": "user", "content": "A"}], "reasoning_effort": )";
  EXPECT_EQ(text_of(effort + R"("HI"})", reasoning), "HI") << "as vLLM, for templates that read it";
  EXPECT_EQ(text_of(effort + R"("HI", "chat_template_kwargs": {"reasoning_effort": "LO"}})", reasoning), "LO");
  EXPECT_EQ(text_of(effort + "null}", reasoning), "NONE");
  ModelCard calling = card();
  calling.chat = *ChatTemplate::parse(
      "{{ (messages[0].tool_calls[0].function.arguments | tojson) | replace(' ', '') }}");  // this vocabulary lacks
                                                                                            // braces
  EXPECT_EQ(text_of(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments":
                "{\"ID\": 123456789012345678901, \"N\": 9007199254740993}"}}]}]})",
                    calling),
            R"("ID":123456789012345678901,"N":9007199254740993)");
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "content": "A"}], "chat_template_kwargs": {"shout": true}})"),
            "<s>U:A ! A:");
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "SO "}],
                        "continue_final_message": true, "add_generation_prompt": false})"),
            "<s>U:A A:SO ");
}

TEST(ParseChat, AMessageIsContinuedWhereItsContentEnds) {
  ModelCard model = card();
  model.chat = *ChatTemplate::parse("{% for m in messages %}<{{ m.role[0] | upper }}>{{ m.content }}</>{% endfor %}");
  const auto after = [](const std::string& content) {
    return R"({"messages": [{"role": "user", "content": "A<"}, {"role": "assistant", "content": ")" + content +
           R"("}], "continue_final_message": true})";
  };
  for (const std::string content : {"<", "/", "A", "</>", "A "})
    EXPECT_EQ(text_of(after(content), model), "<U>A<</><A>" + content);
  EXPECT_THAT(chat_refusal(after(" "), model),
              HasSubstr("continue_final_message: expected a last message with content"));
  model.chat = *ChatTemplate::parse("A {{ messages[0].content }}");
  EXPECT_THAT(chat_refusal(after("A"), model),
              HasSubstr("messages: continue_final_message: the chat template leaves out the last message's content"));
  EXPECT_EQ(parse_chat(after("A"), model, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ParseChat, TheStartOfATextIsThereOnce) {
  ModelCard model = card();
  model.tokenizer = byte_tokenizer(/*adds_start=*/true);
  const auto request = parse_chat(R"({"messages": [{"role": "user", "content": "A"}]})", model, 0);
  EXPECT_THAT(request->completion.prompts.front(), ElementsAre(98, 'U', ':', 'A', ' ', 'A', ':'));
}

TEST(ParseChat, GeneratesWhatFitsUnlessItIsTold) {
  const std::string messages = R"("messages": [{"role": "user", "content": "A"}])";
  EXPECT_EQ(parse_chat("{" + messages + "}", card(), 0)->completion.max_tokens, 64 - 7);
  EXPECT_EQ(parse_chat("{" + messages + R"(, "max_tokens": 5})", card(), 0)->completion.max_tokens, 5);
  EXPECT_EQ(parse_chat("{" + messages + R"(, "max_tokens": 5, "max_completion_tokens": 6})", card(), 0)
                ->completion.max_tokens,
            6);
  EXPECT_THAT(chat_refusal("{" + messages + R"(, "max_tokens": 60})"), HasSubstr("have 7 tokens"));
}

TEST(ParseChat, SaysWhatIsWrong) {
  const auto with = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "A"}], )" + more + "}";
  };
  EXPECT_THAT(chat_refusal("{}"), HasSubstr("messages: expected a list of one message or more, found null"));
  EXPECT_THAT(chat_refusal(R"({"messages": ["A"]})"), HasSubstr("messages[0]: expected an object with a role"));
  EXPECT_THAT(chat_refusal(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"),
              HasSubstr("messages[0].content: expected a text, or parts"));
  EXPECT_THAT(chat_refusal(with(R"("tool_choice": "required")")), HasSubstr("\"tool_choice\" is not supported"));
  EXPECT_THAT(chat_refusal(with(R"("top_logprobs": 2)")), HasSubstr("expected also \"logprobs\": true"));
  EXPECT_THAT(chat_refusal(with(R"("chat_template": "x")")), HasSubstr("\"chat_template\" is not supported"));
  ModelCard model = card();
  model.chat.reset();
  model.no_chat = absl::UnimplementedError("line 3: unknown filter batch");
  EXPECT_THAT(chat_refusal(with(R"("n": 1)"), model), HasSubstr("(line 3: unknown filter batch)"));
  model.chat = *ChatTemplate::parse("{{ raise_exception('roles must alternate') }}");
  EXPECT_THAT(chat_refusal(with(R"("n": 1)"), model),
              HasSubstr("messages: chat template: line 1: it refuses the conversation: roles must"));
}

TEST(ParseChat, AMessagesContentIsATextOrParts) {
  for (const char* content : {"1", "true", R"({"a":1})", "[1]", R"([{"type":1,"text":"A"}])", R"([{"type":"text"}])"}) {
    const std::string messages = cat(R"({"messages": [{"role": "user", "content": )", content, "}]}");
    EXPECT_THAT(chat_refusal(messages), HasSubstr("messages[0].content: expected a text, or parts")) << content;
    EXPECT_FALSE(parse_tokenize(messages, card()).ok()) << content;
  }
  EXPECT_THAT(chat_refusal(R"({"messages": [{"role": "user", "content": 1}]})"), HasSubstr("found 1"));
  for (const char* role : {"user", "system", "developer"})
    EXPECT_THAT(chat_refusal(cat(R"({"messages": [{"role": ")", role, R"(", "contents": "A"}]})")),
                HasSubstr("messages[0].content: expected"))
        << role;
}

// A model wrote a broken call, and the client sends it back with each later turn.
TEST(ParseChat, AHistoryIsRenderedAlthoughATemplateFailsOnIt) {
  ModelCard model = card();
  model.chat = *ChatTemplate::parse(
      "{% for message in messages %}{{ message.content + ' ' }}{% for call in message.tool_calls %}"
      "{% for name, value in call.function.arguments | items %}{{ name | upper }}={{ value }} {% endfor %}"
      "{% endfor %}{% endfor %}");
  const auto history = [](const std::string& arguments) {
    return cat(R"({"messages": [{"role": "user", "content": "HI"}, {"role": "assistant", "content": null,
                   "tool_calls": [{"type": "function", "function": {"name": "F", "arguments": )",
               arguments, R"(}}]}, {"role": "tool", "content": "NO"}]})");
  };
  EXPECT_EQ(text_of(history(R"("{\"CITY\": \"BERN\"}")"), model), "HI  CITY=BERN NO ");
  EXPECT_EQ(text_of(history(R"("[\"BERN")"), model), "HI  ARGUMENTS=[\"BERN NO ");
  EXPECT_EQ(text_of(history("5"), model), "HI  ARGUMENTS=5 NO ");
  EXPECT_EQ(text_of(history(R"("")"), model), "HI  NO ");
  model.chat = *ChatTemplate::parse("{{ raise_exception('roles must alternate') }}");
  EXPECT_THAT(chat_refusal(history("5"), model), HasSubstr("roles must alternate")) << "the first failure is told";
}

TEST(ParseTokenize, TakesATextOrMessages) {
  EXPECT_THAT(parse_tokenize(R"({"prompt": "A<end>"})", card())->tokens, ElementsAre(65, 99));
  EXPECT_THAT(parse_tokenize(R"({"messages": [{"role": "user", "content": "A"}]})", card())->tokens,
              ElementsAre(98, 'U', ':', 'A', ' ', 'A', ':'));
  EXPECT_THAT(std::string(parse_tokenize("{}", card()).status().message()), HasSubstr("prompt is missing"));
  EXPECT_THAT(parse_detokenize(R"({"tokens": [65]})", card())->tokens, ElementsAre(65));
  EXPECT_THAT(std::string(parse_detokenize(R"({"tokens": [100]})", card()).status().message()),
              HasSubstr("from 0 to 99, found 100"));
}

}  // namespace
}  // namespace bascule::ref
