#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <bascule/trainer_ref/chat/final_message.h>
#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/chat_messages.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using Ordered = ChatTemplate::Json;  // the order of a tool's keys shows in the text

// Without max_tokens or max_completion_tokens, the default is everything that fits after the prompt.
absl::Status read_length(Fields& fields, const ModelCard& card, CompletionRequest& request) {
  const auto length = static_cast<std::int64_t>(request.prompts.front().size());
  const std::optional<std::int64_t> older = read_max_tokens(fields, "max_tokens", 1, card);
  const std::optional<std::int64_t> newer = read_max_tokens(fields, "max_completion_tokens", 1, card);
  BASCULE_TRY(fields.status);
  const std::int64_t room = set_max_tokens(newer ? newer : older, card, request);
  if (length + room > card.max_model_len)
    return invalid_argument("the messages have ", length, " tokens and max_completion_tokens is ", room, ": ",
                            context_length_of(card));
  request.max_tokens = std::min(request.max_tokens, card.max_model_len - length);
  return absl::OkStatus();
}

std::optional<std::int64_t> read_chat_logprobs(Fields& fields) {
  bool logprobs = false;
  fields.boolean("logprobs", logprobs);
  std::int64_t top = 0;
  fields.integer("top_logprobs", top, std::int64_t{0}, kMostTopLogprobs);
  if (top > 0 && !logprobs) fields.refuse(invalid_argument("top_logprobs: expected also \"logprobs\": true"));
  return logprobs ? std::optional(top) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::vector<std::int64_t>> read_messages(std::string_view text, Fields& fields, const ModelCard& card,
                                                        bool add_special_tokens, const EncodeLimits& limits) {
  if (!card.chat)
    return invalid_argument("messages: this model has no chat template that can be used here (", card.no_chat.message(),
                            "); send the text to /v1/completions");
  bool add_generation_prompt = true, continue_final_message = false;
  fields.boolean("add_generation_prompt", add_generation_prompt);
  fields.boolean("continue_final_message", continue_final_message);
  for (const char* field : {"messages", "tools", "chat_template_kwargs", "documents", "reasoning_effort"})
    fields.find(field);
  fields.neutral("chat_template", {nullptr});
  fields.neutral("tool_choice", {"auto", "none"});
  BASCULE_TRY(fields.status);
  if (continue_final_message && add_generation_prompt && fields.find("add_generation_prompt") != nullptr)
    return invalid_argument("continue_final_message: expected also \"add_generation_prompt\": false, found true");
  Ordered request = parse_ordered(text);  // already checked by the first parse
  Ordered messages = request.value("messages", Ordered());
  if (!messages.is_array() || messages.empty())
    return invalid_argument("messages: expected a list of one message or more, found ", shown(messages));
  BASCULE_TRY(prepare_messages(messages));
  Ordered variables = request.value("chat_template_kwargs", Ordered());
  if (variables.is_null()) variables = Ordered::object();
  if (!variables.is_object()) return invalid_argument("chat_template_kwargs: expected an object");
  for (const char* variable : {"documents", "reasoning_effort"})
    if (request.contains(variable) && !request[variable].is_null() && !variables.contains(variable))
      variables[variable] = request[variable];
  Ordered tools = request.value("tools", Ordered());
  if (!tools.is_null() && !tools.is_array()) return invalid_argument("tools: expected a list of JSON schemas");
  if (tools.empty()) tools = nullptr;
  const auto render = [&](const Ordered& list) {
    return continue_final_message ? render_unfinished(*card.chat, list, tools, variables)
                                  : card.chat->render(list, tools, add_generation_prompt, variables);
  };
  absl::StatusOr<std::string> rendered = render(messages);
  if (!rendered.ok()) {
    Ordered simple = messages;
    absl::StatusOr<std::string> again = simplify_messages(simple) ? render(simple) : rendered;
    if (again.ok()) rendered = std::move(again);
  }
  if (!rendered.ok()) return invalid_argument("messages: ", message_of(rendered.status()));
  BASCULE_ASSIGN(std::vector<std::int64_t> tokens, encode(*rendered, add_special_tokens, card, "messages", limits));
  if (tokens.empty()) return invalid_argument("messages: the model's chat template writes no text for them");
  return tokens;
}

absl::StatusOr<ApiRequest> parse_chat(std::string_view text, const ModelCard& card, std::uint64_t seed,
                                      const std::stop_token& stop) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  ApiRequest request;
  request.answer.chat = true;
  BASCULE_ASSIGN(const AdapterEntry adapter, read_model(fields, card));
  request.completion.adapter = adapter.id;
  request.answer.adapter = adapter.name;
  read_shared_fields(fields, card, seed, request);
  request.answer.logprobs = read_chat_logprobs(fields);
  fields.neutral("echo", {false});
  bool add_special_tokens = false;  // the template writes them itself
  fields.boolean("add_special_tokens", add_special_tokens);
  BASCULE_TRY(fields.status);
  const EncodeLimits limits{.most_tokens = static_cast<std::size_t>(card.max_model_len), .stop = stop};
  BASCULE_ASSIGN(std::vector<std::int64_t> tokens, read_messages(text, fields, card, add_special_tokens, limits));
  request.completion.prompts.push_back(std::move(tokens));
  BASCULE_TRY(read_length(fields, card, request.completion));
  BASCULE_TRY(finish_request(card, request));
  request.ignored = fields.unread();
  return request;
}

}  // namespace bascule::ref
