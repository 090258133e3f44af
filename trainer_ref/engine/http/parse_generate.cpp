// /generate of vLLM's own small server, as environments of Atropos use it: one prompt beside vLLM's SamplingParams.
#include <string>
#include <utility>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

// A text, or {"prompt_token_ids": [1, 2]}, or {"prompt": "a text"}.
absl::StatusOr<json> read_one_prompt(const json& given) {
  if (given.is_string()) return given;
  if (given.is_object())
    for (const char* key : {"prompt_token_ids", "prompt"})
      if (const auto found = given.find(key); found != given.end() && (found->is_string() || found->is_array()))
        return *found;
  return invalid_argument("prompt: expected a text, or {\"prompt_token_ids\": [1, 2]}, found ", shown(given));
}

}  // namespace

absl::StatusOr<ApiRequest> parse_generate(std::string_view text, const ModelCard& card, std::uint64_t seed,
                                          const std::stop_token& stop) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  if (object.contains("prompts")) return parse_trl_generate(text, card, seed, stop);
  const auto prompt = object.find("prompt");
  if (prompt == object.end())
    return invalid_argument("expected \"prompt\", as vLLM's server, or \"prompts\", as TRL's older one; found neither");
  if (const auto stream = object.find("stream"); stream != object.end() && *stream == true)
    return invalid_argument("stream: /generate answers at once; use /v1/completions for a stream");
  // SamplingParams' own defaults, whatever generation_config.json has.
  json body{
      {"n", 1},           {"repetition_penalty", 1},     {"temperature", 1}, {"top_p", 1}, {"top_k", 0}, {"min_p", 0},
      {"max_tokens", 16}, {"logprobs_mode", "processed"}};
  body.update(object);
  for (const char* own : {"stream", "echo", "best_of", "output_kind"}) body.erase(own);
  BASCULE_ASSIGN(body["prompt"], read_one_prompt(*prompt));
  body["return_token_ids"] = true;
  BASCULE_ASSIGN(ApiRequest request, parse_completion(body.dump(), card, seed, stop));
  request.answer.form = AnswerForm::kVllm;
  return request;
}

}  // namespace bascule::ref
