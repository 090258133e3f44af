#include <algorithm>
#include <string>
#include <utility>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/chat_messages.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using Ordered = ChatTemplate::Json;  // the order of a tool's keys shows in the text

// Cuts the text at the end of the last message's content, so that the model continues this message.
absl::StatusOr<std::string> cut_behind_last(std::string text, const Ordered& messages) {
  const auto content = messages.back().find("content");
  const bool is_text = content != messages.back().end() && content->is_string();
  std::string last = is_text ? content->get<std::string>() : "";
  const std::size_t begin = last.find_first_not_of(" \t\r\n");
  const std::size_t end = last.find_last_not_of(" \t\r\n");
  if (begin == std::string::npos)
    return invalid_argument("continue_final_message: expected a last message with content, found none");
  const std::string trimmed = last.substr(begin, end + 1 - begin);  // as templates write it
  const std::size_t found = text.rfind(trimmed);
  if (found == std::string::npos)
    return invalid_argument("continue_final_message: the chat template does not write the last message's content as ",
                            "it is; leave continue_final_message out");
  const bool whole = text.compare(found, last.size() - begin, last, begin) == 0;
  text.resize(found + (whole ? last.size() - begin : trimmed.size()));
  return text;
}

// Without max_tokens or max_completion_tokens, the default is everything that fits after the prompt.
absl::Status read_max_tokens(Fields& fields, const ModelCard& card, CompletionRequest& request) {
  const auto length = static_cast<std::int64_t>(request.prompts.front().size());
  std::int64_t asked = 0;
  fields.integer("max_tokens", asked, std::int64_t{1}, card.max_model_len);
  fields.integer("max_completion_tokens", asked, std::int64_t{1}, card.max_model_len);
  BASCULE_TRY(fields.status);
  request.max_tokens = asked > 0 ? asked : card.max_model_len - length;
  if (length + std::max(request.max_tokens, std::int64_t{1}) > card.max_model_len)
    return invalid_argument("the messages have ", length, " tokens and max_completion_tokens is ",
                            std::max(request.max_tokens, std::int64_t{1}), ": expected at most ", card.max_model_len,
                            " together (--max-model-len)");
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
                                                        bool add_special_tokens) {
  if (!card.chat)
    return invalid_argument("messages: this model has no chat template that can be used here (", card.no_chat.message(),
                            "); send the text to /v1/completions");
  bool add_generation_prompt = true, continue_final_message = false;
  fields.boolean("add_generation_prompt", add_generation_prompt);
  fields.boolean("continue_final_message", continue_final_message);
  for (const char* field : {"messages", "tools", "chat_template_kwargs", "documents"}) fields.find(field);
  fields.neutral("chat_template", {nullptr});
  fields.neutral("tool_choice", {"auto", "none"});
  BASCULE_TRY(fields.status);
  if (continue_final_message && add_generation_prompt && fields.find("add_generation_prompt") != nullptr)
    return invalid_argument("continue_final_message: expected also \"add_generation_prompt\": false, found true");
  Ordered request = Ordered::parse(text);  // already checked by the first parse
  Ordered messages = request.value("messages", Ordered());
  if (!messages.is_array() || messages.empty())
    return invalid_argument("messages: expected a list of one message or more, found ", shown(messages));
  BASCULE_TRY(prepare_messages(messages));
  Ordered variables = request.value("chat_template_kwargs", Ordered());
  if (variables.is_null()) variables = Ordered::object();
  if (!variables.is_object()) return invalid_argument("chat_template_kwargs: expected an object");
  if (request.contains("documents") && !request["documents"].is_null()) variables["documents"] = request["documents"];
  Ordered tools = request.value("tools", Ordered());
  if (!tools.is_null() && !tools.is_array()) return invalid_argument("tools: expected a list of JSON schemas");
  if (tools.empty()) tools = nullptr;
  const auto render = [&](const Ordered& list) {
    return card.chat->render(list, tools, add_generation_prompt && !continue_final_message, variables);
  };
  absl::StatusOr<std::string> rendered = render(messages);
  if (!rendered.ok()) {
    Ordered simple = messages;
    absl::StatusOr<std::string> again = simplify_messages(simple) ? render(simple) : rendered;
    if (again.ok()) rendered = std::move(again);
  }
  if (!rendered.ok()) return invalid_argument("messages: ", message_of(rendered.status()));
  if (continue_final_message) rendered = cut_behind_last(*std::move(rendered), messages);
  BASCULE_TRY(rendered.status());
  BASCULE_ASSIGN(std::vector<std::int64_t> tokens, encode(*rendered, add_special_tokens, card, "messages"));
  if (tokens.empty()) return invalid_argument("messages: the model's chat template writes no text for them");
  return tokens;
}

absl::StatusOr<ApiRequest> parse_chat(std::string_view text, const ModelCard& card, std::uint64_t seed) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  ApiRequest request;
  request.answer.chat = true;
  request.completion.sampling.seed = seed;
  BASCULE_TRY(check_model(fields, card));
  read_shared_fields(fields, card, request);
  request.answer.logprobs = read_chat_logprobs(fields);
  fields.neutral("echo", {false});
  bool add_special_tokens = false;  // the template writes them itself
  fields.boolean("add_special_tokens", add_special_tokens);
  BASCULE_TRY(fields.status);
  BASCULE_ASSIGN(std::vector<std::int64_t> tokens, read_messages(text, fields, card, add_special_tokens));
  request.completion.prompts.push_back(std::move(tokens));
  BASCULE_TRY(read_max_tokens(fields, card, request.completion));
  BASCULE_TRY(finish_request(card, request));
  request.ignored = fields.unread();
  return request;
}

}  // namespace bascule::ref
