#include <bascule/trainer_ref/engine/http/request_fields.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <bascule/trainer_ref/engine/http/sampling_fields.h>
#include <bascule/trainer_ref/engine/http/stop_strings.h>
#include <bascule/trainer_ref/text/text_stream.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

// The most log-probabilities of prompts in an answer: the prompts' tokens, times the tokens that are reported at each.
constexpr std::int64_t kMostPromptScores = 1 << 20;

constexpr std::int64_t kAsManyAsFit = -1;  // as max_tokens

// Fields of OpenAI and vLLM that have no effect here.
constexpr std::array<const char*, 14> kHarmless{"user",
                                                "metadata",
                                                "store",
                                                "service_tier",
                                                "safety_identifier",
                                                "prompt_cache_key",
                                                "request_id",
                                                "priority",
                                                "cache_salt",
                                                "verbosity",
                                                "parallel_tool_calls",
                                                "reasoning_effort",
                                                "length_penalty",
                                                "spaces_between_special_tokens"};

void read_neutral_fields(Fields& fields) {
  fields.accept(kHarmless);
  fields.neutral("use_beam_search", {false});
  fields.neutral("bad_words", {json::array()});
  fields.neutral("truncate_prompt_tokens", {nullptr});
  fields.neutral("response_format", {{{"type", "text"}}});
  for (const char* guide : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
                            "logits_processors", "allowed_token_ids"})
    fields.neutral(guide, {nullptr});
}

void read_stop_tokens(Fields& fields, const ModelCard& card, ApiRequest& request) {
  bool ignore_eos = false;
  fields.boolean("ignore_eos", ignore_eos);
  std::vector<std::int64_t>& all = request.completion.stop_token_ids;
  if (!ignore_eos) all = card.eos_token_ids;
  if (const json* given = fields.find("stop_token_ids")) {
    if (!given->is_array()) return fields.refuse("stop_token_ids", *given, "a list of token ids");
    for (const json& id : *given) {
      if (!is_token(id, card))
        return fields.refuse("stop_token_ids", id, cat("token ids from 0 to ", card.vocab_size - 1));
      request.answer.asked_stop_ids.push_back(id.get<std::int64_t>());
      all.push_back(id.get<std::int64_t>());
    }
  }
  std::sort(all.begin(), all.end());
  std::sort(request.answer.asked_stop_ids.begin(), request.answer.asked_stop_ids.end());
}

// A text leaves special tokens out, so a stop string that is one would never be found in it: the token itself ends it.
void stop_at_special_tokens(const std::vector<std::string>& strings, const ModelCard& card, ApiRequest& request) {
  for (const std::string& each : strings) {
    const std::optional<std::int64_t> id = card.tokenizer->id_of(each);
    if (!id || *id >= card.vocab_size || !card.tokenizer->is_special(*id)) continue;
    for (std::vector<std::int64_t>* ids : {&request.completion.stop_token_ids, &request.answer.asked_stop_ids})
      ids->insert(std::upper_bound(ids->begin(), ids->end(), *id), *id);
  }
}

void read_stop_strings(Fields& fields, const ModelCard& card, ApiRequest& request) {
  fields.boolean("include_stop_str_in_output", request.answer.include_stop);
  const json* given = fields.find("stop");
  if (given == nullptr || (given->is_array() && given->empty())) return;
  const std::string expected =
      cat("a text, or a list of up to ", StopStrings::kMost, ", each of 1 to ", StopStrings::kMostBytes, " bytes");
  auto strings = std::make_shared<std::vector<std::string>>();
  for (const json& each : given->is_array() ? *given : json::array({*given})) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty() ||
        each.get_ref<const std::string&>().size() > StopStrings::kMostBytes || strings->size() == StopStrings::kMost)
      return fields.refuse("stop", *given, expected);
    strings->push_back(each.get<std::string>());
  }
  if (!card.tokenizer)
    return fields.refuse(invalid_argument("stop: this model's text cannot be read here (", card.no_text.message(),
                                          "); leave it out, or give stop_token_ids"));
  if (!request.answer.with_special_tokens) stop_at_special_tokens(*strings, card, request);
  request.answer.stop = std::move(strings);
}

// With best_of above n, that many completions are made, and the n likeliest ones returned.
void read_count(Fields& fields, const ModelCard& card, ApiRequest& request) {
  std::int64_t& made = request.completion.n;
  fields.integer("n", made, std::int64_t{1}, card.max_batch);
  const std::int64_t returned = made;
  fields.integer("best_of", made, returned, card.max_batch);
  if (made == returned) return;
  request.answer.best = returned;
  if (request.answer.stream)
    fields.refuse(
        invalid_argument("best_of: not above n in a stream, because the best ones are known at the end; leave "
                         "out \"stream\" or \"best_of\""));
}

bool read_include_usage(Fields& fields) {
  const json* options = fields.find("stream_options");
  if (options == nullptr) return false;
  bool include_usage = false;
  if (!options->is_object()) {
    fields.refuse("stream_options", *options, "an object");
    return false;
  }
  Fields inner(*options);
  inner.boolean("include_usage", include_usage);
  fields.add_unread("stream_options", inner);
  if (!inner.status.ok()) fields.refuse(annotate(inner.status, "stream_options"));
  return include_usage;
}

}  // namespace

std::optional<std::int64_t> read_max_tokens(Fields& fields, const char* field, std::int64_t least,
                                            const ModelCard& card) {
  const json* given = fields.find(field);
  if (given == nullptr || *given == kAsManyAsFit) return given == nullptr ? std::nullopt : std::optional(kAsManyAsFit);
  std::int64_t most = least;
  fields.integer(field, most, least, card.max_model_len);
  return most;
}

std::int64_t set_max_tokens(std::optional<std::int64_t> asked, const ModelCard& card, CompletionRequest& request) {
  const std::int64_t most = asked.value_or(card.defaults.max_tokens.value_or(kAsManyAsFit));
  request.max_tokens = most == kAsManyAsFit ? card.max_model_len : most;
  if (asked && *asked != kAsManyAsFit) return *asked;
  request.max_length = card.max_model_len;
  return 1;
}

absl::StatusOr<json> parse_object(std::string_view text) {
  BASCULE_ASSIGN(json object, parse_json(text, "the request"));
  if (!object.is_object()) return invalid_argument("expected a JSON object, found ", object.type_name());
  return object;
}

absl::StatusOr<AdapterEntry> read_model(Fields& fields, const ModelCard& card) {
  const json* model = fields.find("model");
  if (model == nullptr) return find_model(card, "", "");
  if (!model->is_string()) return not_served(card, shown(*model));
  return find_model(card, model->get_ref<const std::string&>(), shown(*model));
}

std::string context_length_of(const ModelCard& card) {
  return cat("this model's maximum context length is ", card.max_model_len, " tokens (--max-model-len)");
}

bool is_token(const json& value, const ModelCard& card) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() < static_cast<std::uint64_t>(card.vocab_size);
}

absl::StatusOr<std::vector<std::int64_t>> encode(std::string_view text, bool add_special_tokens, const ModelCard& card,
                                                 std::string_view where, const EncodeLimits& limits) {
  if (!card.tokenizer)
    return invalid_argument(where, ": this model's text cannot be read here (", card.no_text.message(),
                            "); send token ids to /v1/completions, as in \"prompt\": [1, 2, 3]");
  absl::StatusOr<std::vector<std::int64_t>> tokens = card.tokenizer->encode(text, add_special_tokens, limits);
  if (absl::IsOutOfRange(tokens.status()))
    return invalid_argument(where, ": the text of ", text.size(), " bytes ", tokens.status().message(), ": ",
                            context_length_of(card));
  // Not 429: the same text would fail again.
  if (absl::IsResourceExhausted(tokens.status())) return invalid_argument(where, ": ", tokens.status().message());
  if (!tokens.ok()) return annotate(tokens.status(), where);
  for (const std::int64_t id : *tokens)
    if (id >= card.vocab_size)
      return invalid_argument(where, ": its text has the tokenizer's token ", id, ", and the model's tokens end at ",
                              card.vocab_size - 1, "; leave out the text of that token");
  return tokens;
}

void read_shared_fields(Fields& fields, const ModelCard& card, std::uint64_t seed, ApiRequest& request) {
  AnswerOptions& answer = request.answer;
  request.completion.sampling = card.defaults.sampling;
  request.completion.sampling.seed = seed;
  fields.boolean("stream", answer.stream);
  read_count(fields, card, request);
  read_sampling(fields, card, request.completion.sampling);
  read_stop_tokens(fields, card, request);
  bool skip_special_tokens = true;
  fields.boolean("skip_special_tokens", skip_special_tokens);
  answer.with_special_tokens = !skip_special_tokens;
  read_stop_strings(fields, card, request);
  answer.include_usage = read_include_usage(fields);
  fields.boolean("return_token_ids", answer.return_token_ids);
  fields.boolean("return_tokens_as_token_ids", answer.tokens_as_ids);
  std::int64_t prompt_logprobs = -1;
  fields.integer("prompt_logprobs", prompt_logprobs, std::int64_t{0}, kMostTopLogprobs);
  if (prompt_logprobs >= 0) {
    if (answer.stream)
      fields.refuse(invalid_argument("prompt_logprobs: not in a stream; leave out \"stream\", or use \"echo\""));
    answer.prompt_logprobs = true;
    request.completion.prompt_logprobs = prompt_logprobs;
  }
  read_neutral_fields(fields);
}

absl::Status finish_request(const ModelCard& card, ApiRequest& request) {
  CompletionRequest& completion = request.completion;
  AnswerOptions& answer = request.answer;
  if (completion.choices() > static_cast<std::size_t>(card.max_choices))
    return invalid_argument(completion.prompts.size(), " prompts with ", answer.best > 0 ? "best_of" : "n", " = ",
                            completion.n, " make ", completion.choices(), " completions: expected at most ",
                            card.max_choices, " in a request");
  if (answer.echo && answer.logprobs)
    completion.prompt_logprobs = std::max(completion.prompt_logprobs.value_or(0), *answer.logprobs);
  if (completion.prompt_logprobs) {
    std::int64_t scores = 0;
    for (const auto& prompt : completion.prompts)
      scores += static_cast<std::int64_t>(prompt.size()) * (1 + *completion.prompt_logprobs);
    if (scores > kMostPromptScores)
      return invalid_argument("the log-probabilities of these prompts are ", scores, ": expected at most ",
                              kMostPromptScores, " in a request; send fewer prompts, or request fewer tokens at each");
  }
  BASCULE_TRY(forbid_early_ends(card, completion));
  if (answer.logprobs) completion.sampling.top_logprobs = *answer.logprobs;
  answer.n = completion.n;
  answer.stop_token_ids = completion.stop_token_ids;
  answer.min_tokens = completion.sampling.adjustments.min_tokens;
  if (answer.echo || answer.prompt_logprobs || answer.return_token_ids) answer.prompts = completion.prompts;
  if (card.tokenizer && !answer.echo) {
    const TextStream text = card.tokenizer->stream(answer.with_special_tokens);
    for (const std::vector<std::int64_t>& prompt : completion.prompts) {
      const std::span<const std::int64_t> tail = text.tail_of(prompt);
      answer.prompt_tails.emplace_back(tail.begin(), tail.end());
    }
  }
  if (answer.stop) {
    completion.text_end =
        [tokenizer = *card.tokenizer, stop = answer.stop, echo = answer.echo, min_tokens = answer.min_tokens,
         with_special_tokens = answer.with_special_tokens](std::span<const std::int64_t> prompt) -> TextEnd {
      struct Watch {
        TextStream text;
        StopStrings stop;
        std::int64_t passing;  // tokens before one may end the text
      };
      auto watch = std::make_shared<Watch>(
          Watch{tokenizer.stream(with_special_tokens), StopStrings(stop, /*included=*/false), min_tokens});
      // As in the answer: the first token of a text may decode differently.
      if (!echo) watch->text.follow(watch->text.tail_of(prompt));
      if (echo)
        for (const std::int64_t token : prompt) watch->text.push(token);
      return [watch](std::int64_t token) {
        const std::string text = watch->text.push(token);
        if (watch->passing == 0) {
          watch->stop.push(text);
        } else {
          watch->stop.pass(text);
          --watch->passing;
        }
        return watch->stop.found().has_value();
      };
    };
  }
  return absl::OkStatus();
}

}  // namespace bascule::ref
