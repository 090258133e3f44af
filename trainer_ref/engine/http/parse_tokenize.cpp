#include <string>
#include <utility>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

using nlohmann::json;

absl::StatusOr<TokenizeRequest> parse_tokenize(std::string_view text, const ModelCard& card,
                                               const std::stop_token& stop) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  BASCULE_TRY(read_model(fields, card).status());
  const json* prompt = fields.find("prompt");
  bool add_special_tokens = prompt != nullptr;  // a chat template writes them itself
  fields.boolean("add_special_tokens", add_special_tokens);
  const EncodeLimits limits{.stop = stop};  // a text may be longer than the model's: clients count tokens
  TokenizeRequest request;
  fields.boolean("return_token_strs", request.with_texts);
  BASCULE_TRY(fields.status);
  if (prompt == nullptr) {
    if (fields.find("messages") == nullptr)
      return invalid_argument("prompt is missing: give a text, or messages instead");
    BASCULE_ASSIGN(request.tokens, read_messages(text, fields, card, add_special_tokens, limits));
  } else {
    if (!prompt->is_string()) return invalid_argument("prompt: expected a text, found ", shown(*prompt));
    BASCULE_ASSIGN(request.tokens,
                   encode(prompt->get_ref<const std::string&>(), add_special_tokens, card, "prompt", limits));
  }
  request.ignored = fields.unread();
  return request;
}

absl::StatusOr<DetokenizeRequest> parse_detokenize(std::string_view text, const ModelCard& card) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  BASCULE_TRY(read_model(fields, card).status());
  const json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array())
    return invalid_argument("tokens: expected a list of token ids", tokens == nullptr ? "" : ", found ",
                            tokens == nullptr ? "" : shown(*tokens));
  if (!card.tokenizer)
    return invalid_argument("tokens: this model's text cannot be read here (", card.no_text.message(), ")");
  DetokenizeRequest request;
  for (const json& id : *tokens) {
    if (!is_token(id, card))
      return invalid_argument("tokens: expected token ids from 0 to ", card.vocab_size - 1, ", found ", shown(id));
    request.tokens.push_back(id.get<std::int64_t>());
  }
  request.ignored = fields.unread();
  return request;
}

}  // namespace bascule::ref
