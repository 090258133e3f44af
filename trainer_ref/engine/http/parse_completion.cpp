#include <optional>
#include <string>
#include <utility>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

absl::StatusOr<std::vector<std::int64_t>> read_prompt(const json& prompt, bool add_special_tokens,
                                                      const ModelCard& card, const EncodeLimits& limits) {
  std::vector<std::int64_t> tokens;
  if (prompt.is_string()) {
    BASCULE_ASSIGN(tokens, encode(prompt.get_ref<const std::string&>(), add_special_tokens, card, "prompt", limits));
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

// Each prompt must leave room for `room` tokens.
absl::Status read_prompts(Fields& fields, const ModelCard& card, std::int64_t room, const std::stop_token& stop,
                          CompletionRequest& request) {
  bool add_special_tokens = true;
  fields.boolean("add_special_tokens", add_special_tokens);
  const json* given = fields.find("prompt");
  BASCULE_TRY(fields.status);
  if (given == nullptr) return invalid_argument("prompt is missing: give text, token ids, or a list of either");
  const bool several = given->is_array() && !given->empty() && !given->front().is_number();
  if (several && given->size() > static_cast<std::size_t>(card.max_choices))
    return invalid_argument("prompt: expected at most ", card.max_choices, " prompts, found ", given->size());
  const EncodeLimits limits{.most_tokens = static_cast<std::size_t>(card.max_model_len), .stop = stop};
  for (std::size_t i = 0; i < (several ? given->size() : 1); ++i) {
    BASCULE_ASSIGN(std::vector<std::int64_t> tokens,
                   read_prompt(several ? (*given)[i] : *given, add_special_tokens, card, limits));
    const auto length = static_cast<std::int64_t>(tokens.size());
    if (length + room > card.max_model_len)
      return invalid_argument("prompt ", i, " has ", length, " tokens and max_tokens is ", room, ": ",
                              context_length_of(card));
    request.prompts.push_back(std::move(tokens));
  }
  return absl::OkStatus();
}

// The number of likeliest tokens; 0 returns only the sampled one. True means 0.
std::optional<std::int64_t> read_completion_logprobs(Fields& fields) {
  const json* given = fields.find("logprobs");
  if (given == nullptr || *given == false) return std::nullopt;
  std::int64_t top = 0;
  if (*given != true) fields.integer("logprobs", top, std::int64_t{0}, kMostTopLogprobs);
  return top;
}

}  // namespace

absl::StatusOr<ApiRequest> parse_completion(std::string_view text, const ModelCard& card, std::uint64_t seed,
                                            const std::stop_token& stop) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  ApiRequest request;
  BASCULE_ASSIGN(const AdapterEntry adapter, read_model(fields, card));
  request.completion.adapter = adapter.id;
  request.answer.adapter = adapter.name;
  read_shared_fields(fields, card, seed, request);
  fields.boolean("echo", request.answer.echo);
  request.answer.logprobs = read_completion_logprobs(fields);
  fields.neutral("suffix", {""});
  // Without a token to generate, the answer is about the prompt.
  const std::int64_t least = request.answer.echo || request.answer.prompt_logprobs ? 0 : 1;
  std::optional<std::int64_t> most = read_max_tokens(fields, "max_tokens", least, card);
  if (!fields.names("max_tokens")) most = request.completion.max_tokens;  // OpenAI's default; null: as in vLLM
  const std::int64_t room = set_max_tokens(most, card, request.completion);
  BASCULE_TRY(fields.status);
  BASCULE_TRY(read_prompts(fields, card, room, stop, request.completion));
  BASCULE_TRY(finish_request(card, request));
  request.ignored = fields.unread();
  return request;
}

}  // namespace bascule::ref
