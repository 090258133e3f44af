// /generate and /chat of TRL's older server: their fields are the ones of completions, which parse them.
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using Ordered = nlohmann::ordered_json;  // the order of a tool's keys shows in the text

// That server's own defaults, whatever generation_config.json has.
Ordered defaults() {
  return {{"n", 1},     {"repetition_penalty", 1}, {"temperature", 1}, {"top_p", 1}, {"top_k", -1},
          {"min_p", 0}, {"max_tokens", 16},        {"logprobs", 0}};
}

// The request as one for completions, without its prompts.
absl::StatusOr<Ordered> translated(const json& object, const Ordered& request) {
  Fields fields(object);
  for (const char* field : {"images", "truncate_prompt_tokens", "guided_decoding_regex", "structured_outputs_regex"})
    fields.neutral(field, {nullptr});
  const json* more = fields.find("generation_kwargs");
  BASCULE_TRY(fields.status);
  if (more != nullptr && !more->is_object())
    return invalid_argument("generation_kwargs: expected an object, found ", shown(*more));
  Ordered body = defaults();
  body.update(request);
  if (more != nullptr) body.update(request.at("generation_kwargs"));
  for (const char* own : {"prompts", "messages", "prompt", "images", "truncate_prompt_tokens", "guided_decoding_regex",
                          "structured_outputs_regex", "generation_kwargs", "stream", "echo", "best_of"})
    body.erase(own);
  body["return_token_ids"] = true;
  body["logprobs_mode"] = "processed";
  return body;
}

// The clients whose requests have logprobs, of TRL 0.29 and later, read lists of the likeliest tokens.
AnswerForm form_of(const json& object) {
  return object.contains("logprobs") ? AnswerForm::kTrl : AnswerForm::kOlderTrl;
}

// The prompts of all conversations in one request.
absl::Status append(ApiRequest conversation, const ModelCard& card, ApiRequest& request) {
  if (request.completion.prompts.empty()) {
    request = std::move(conversation);
    return absl::OkStatus();
  }
  request.completion.prompts.push_back(std::move(conversation.completion.prompts.front()));
  request.answer.prompt_tails.clear();
  return finish_request(card, request);
}

}  // namespace

absl::StatusOr<ApiRequest> parse_trl_generate(std::string_view text, const ModelCard& card, std::uint64_t seed,
                                              const std::stop_token& stop) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  const Ordered given = parse_ordered(text);
  BASCULE_ASSIGN(Ordered body, translated(object, given));
  const auto prompts = object.find("prompts");
  if (prompts == object.end() || !prompts->is_array() || prompts->empty() || prompts->front().is_number())
    return invalid_argument("prompts: expected a list of texts, or of lists of token ids, found ",
                            prompts == object.end() ? "none" : shown(*prompts));
  body["prompt"] = *prompts;
  BASCULE_ASSIGN(ApiRequest request, parse_completion(body.dump(), card, seed, stop));
  request.answer.form = form_of(object);
  return request;
}

absl::StatusOr<ApiRequest> parse_trl_chat(std::string_view text, const ModelCard& card, std::uint64_t seed,
                                          const std::stop_token& stop) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  const Ordered given = parse_ordered(text);
  BASCULE_ASSIGN(Ordered body, translated(object, given));
  const auto conversations = given.find("messages");
  if (conversations == given.end() || !conversations->is_array() || conversations->empty() ||
      !conversations->front().is_array())
    return invalid_argument("messages: expected a list of conversations, each a list of messages, found ",
                            conversations == given.end() ? "none" : shown(*conversations));
  if (conversations->size() > static_cast<std::size_t>(card.max_choices))
    return invalid_argument("messages: expected at most ", card.max_choices, " conversations, found ",
                            conversations->size());
  if (!body["logprobs"].is_null()) {
    body["top_logprobs"] = body["logprobs"];
    body["logprobs"] = true;
  }
  ApiRequest request;
  for (const Ordered& conversation : *conversations) {
    body["messages"] = conversation;
    BASCULE_ASSIGN(ApiRequest one, parse_chat(body.dump(), card, seed, stop));
    BASCULE_TRY(append(std::move(one), card, request));
  }
  request.answer.form = form_of(object);
  return request;
}

}  // namespace bascule::ref
