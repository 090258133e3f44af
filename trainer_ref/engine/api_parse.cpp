#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include <bascule/trainer_ref/engine/api.h>
#include <bascule/transport/json.h>
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

const std::vector<std::string> kFields{"model", "prompt", "max_tokens",     "temperature", "top_k",    "top_p",
                                       "seed",  "n",      "stop_token_ids", "ignore_eos",  "logprobs", "user"};

// Fields of OpenAI's that this engine knows by name and answers only at the value that asks for nothing.
struct Unsupported {
  const char* field;
  json neutral;
};
const std::vector<Unsupported>& unsupported_fields() {
  static const auto* fields = new std::vector<Unsupported>{
      {"stream", false},          {"echo", false},          {"stop", json::array()},        {"suffix", ""},
      {"presence_penalty", 0},    {"frequency_penalty", 0}, {"logit_bias", json::object()}, {"best_of", 1},
      {"stream_options", nullptr}};
  return *fields;
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "…";
  return text;
}

// One request's fields, each read once. After the first refusal nothing is read any more.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  absl::Status status;

  const json* find(const char* field) {
    const auto found = object_.find(field);
    return !status.ok() || found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  template <typename T>
  void integer(const char* field, T& value, T low, T high) {
    const json* given = find(field);
    if (given == nullptr) return;
    const bool fits = given->is_number_unsigned() ? given->get<std::uint64_t>() >= static_cast<std::uint64_t>(low) &&
                                                        given->get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                                                  : false;
    if (!fits) return refuse(field, *given, cat("an integer from ", low, " to ", high));
    value = given->get<T>();
  }

  void number(const char* field, double& value, double low, double high) {
    const json* given = find(field);
    if (given == nullptr) return;
    if (!given->is_number() || !(given->get<double>() >= low && given->get<double>() <= high))
      return refuse(field, *given, cat("a number from ", low, " to ", high));
    value = given->get<double>();
  }

  void boolean(const char* field, bool& value) {
    const json* given = find(field);
    if (given == nullptr) return;
    if (!given->is_boolean()) return refuse(field, *given, "true or false");
    value = given->get<bool>();
  }

  void refuse(std::string_view field, const json& found, std::string_view expected) {
    if (status.ok()) status = invalid_argument(field, ": expected ", expected, ", found ", shown(found));
  }

 private:
  const json& object_;
};

absl::Status check_fields(const json& object) {
  for (const auto& [field, value] : object.items()) {
    if (std::find(kFields.begin(), kFields.end(), field) != kFields.end()) continue;
    const auto unsupported = std::find_if(unsupported_fields().begin(), unsupported_fields().end(),
                                          [&field = field](const Unsupported& known) { return field == known.field; });
    if (unsupported == unsupported_fields().end())
      return invalid_argument("unknown field \"", field, "\"", did_you_mean(field, kFields));
    if (!value.is_null() && value != unsupported->neutral)
      return invalid_argument("field \"", field, "\" is not supported: leave it out or give ",
                              shown(unsupported->neutral), ", found ", shown(value));
  }
  return absl::OkStatus();
}

bool is_token(const json& value, const ModelCard& card) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() < static_cast<std::uint64_t>(card.vocab_size);
}

absl::StatusOr<std::vector<std::int64_t>> read_prompt(const json& prompt, const ModelCard& card) {
  std::vector<std::int64_t> tokens;
  if (prompt.is_string()) {
    if (!card.encode)
      return invalid_argument("prompt: this model's text cannot be read here (", card.no_text.message(),
                              "); send token ids, as in \"prompt\": [1, 2, 3]");
    auto encoded = card.encode(prompt.get_ref<const std::string&>());
    if (!encoded.ok()) return annotate(encoded.status(), "prompt");
    tokens = *std::move(encoded);
    for (const std::int64_t id : tokens)
      if (id >= card.vocab_size)
        return invalid_argument("prompt: its text has token ", id, " of the tokenizer, and the model's end at ",
                                card.vocab_size - 1, "; leave out the text of that token");
  } else if (prompt.is_array()) {
    for (const json& id : prompt) {
      if (!is_token(id, card))
        return invalid_argument("prompt: expected token ids from 0 to ", card.vocab_size - 1, ", found ", shown(id));
      tokens.push_back(id.get<std::int64_t>());
    }
  } else {
    return invalid_argument("prompt: expected text, token ids, or a list of either, found ", shown(prompt));
  }
  if (tokens.empty()) return invalid_argument("prompt: expected one token or more, found none");
  return tokens;
}

absl::Status read_prompts(const json& object, const ModelCard& card, CompletionRequest& request) {
  const auto given = object.find("prompt");
  if (given == object.end()) return invalid_argument("prompt is missing: give text, token ids, or a list of either");
  const bool several = given->is_array() && !given->empty() && !given->front().is_number();
  if (several && given->size() > static_cast<std::size_t>(card.max_choices))
    return invalid_argument("prompt: expected at most ", card.max_choices, " prompts, found ", given->size());
  for (std::size_t i = 0; i < (several ? given->size() : 1); ++i) {
    BASCULE_ASSIGN(std::vector<std::int64_t> tokens, read_prompt(several ? (*given)[i] : *given, card));
    const auto length = static_cast<std::int64_t>(tokens.size());
    if (length + request.max_tokens > card.max_model_len)
      return invalid_argument("prompt ", i, " has ", length, " tokens and max_tokens is ", request.max_tokens,
                              ": expected at most ", card.max_model_len, " together (--max-model-len)");
    request.prompts.push_back(std::move(tokens));
  }
  return absl::OkStatus();
}

void read_stop_tokens(Fields& fields, const ModelCard& card, CompletionRequest& request) {
  bool ignore_eos = false;
  fields.boolean("ignore_eos", ignore_eos);
  if (!ignore_eos) request.stop_token_ids = card.eos_token_ids;
  if (const json* given = fields.find("stop_token_ids")) {
    if (!given->is_array()) return fields.refuse("stop_token_ids", *given, "a list of token ids");
    for (const json& id : *given) {
      if (!is_token(id, card))
        return fields.refuse("stop_token_ids", id, cat("token ids from 0 to ", card.vocab_size - 1));
      request.stop_token_ids.push_back(id.get<std::int64_t>());
    }
  }
  std::sort(request.stop_token_ids.begin(), request.stop_token_ids.end());
}

}  // namespace

absl::StatusOr<CompletionRequest> parse_completion(std::string_view text, const ModelCard& card, std::uint64_t seed) {
  BASCULE_ASSIGN(const json object, parse_json(text, "the request"));
  if (!object.is_object()) return invalid_argument("expected a JSON object, found ", object.type_name());
  BASCULE_TRY(check_fields(object));
  Fields fields(object);
  CompletionRequest request;
  request.sampling.seed = seed;
  fields.integer("max_tokens", request.max_tokens, std::int64_t{1}, card.max_model_len);
  fields.integer("n", request.n, std::int64_t{1}, card.max_batch);
  fields.number("temperature", request.sampling.temperature, 0, 100);
  fields.integer("top_k", request.sampling.top_k, std::int64_t{0}, std::numeric_limits<std::int64_t>::max());
  fields.number("top_p", request.sampling.top_p, 0, 1);
  fields.integer("seed", request.sampling.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
  read_stop_tokens(fields, card, request);
  if (const json* given = fields.find("logprobs");
      given != nullptr && !given->is_boolean() && *given != 0 && *given != 1)
    fields.refuse("logprobs", *given,
                  "a bool, 0 or 1: the answer always has the sampled token's log-probability, and no others");
  BASCULE_TRY(fields.status);
  if (const json* model = fields.find("model"); model != nullptr && *model != card.id)
    return absl::NotFoundError(
        cat("model ", shown(*model), " is not served here; this engine serves \"", card.id, "\""));
  BASCULE_TRY(read_prompts(object, card, request));
  if (request.choices() > static_cast<std::size_t>(card.max_choices))
    return invalid_argument(request.prompts.size(), " prompts with n = ", request.n, " make ", request.choices(),
                            " completions: expected at most ", card.max_choices, " in a request");
  return request;
}

}  // namespace bascule::ref
