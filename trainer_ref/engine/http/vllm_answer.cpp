#include <bascule/trainer_ref/engine/http/vllm_answer.h>

#include <utility>

namespace bascule::ref {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered by_token(const Sample& sample) {
  Ordered object;
  object[std::to_string(sample.token)] = sample.logprob;
  for (const TokenLogprob& each : sample.top) object[std::to_string(each.token)] = each.logprob;
  return object;
}

}  // namespace

std::string vllm_answer(const nlohmann::json& choices, const AnswerOptions& options, const Completion& completion,
                        const ModelCard& card) {
  const std::vector<std::int64_t>& prompt = options.prompts.front();
  Ordered texts = Ordered::array(), reasons = Ordered::array(), logprobs = Ordered::array(), ids = Ordered::array();
  for (const nlohmann::json& choice : choices) {
    texts.push_back(Ordered(choice["text"]));
    reasons.push_back(Ordered(choice["finish_reason"]));
    ids.push_back(Ordered(choice["token_ids"]));
  }
  for (const auto& sequence : completion.choices) {
    Ordered of_tokens = Ordered::array();
    for (const Sample& sample : sequence->samples) of_tokens.push_back(Ordered::array({by_token(sample)}));
    logprobs.push_back(std::move(of_tokens));
  }
  Ordered answer{{"text", std::move(texts)},
                 {"prompt", card.tokenizer ? card.tokenizer->decode(prompt, /*with_special_tokens=*/true) : ""},
                 {"finish_reasons", std::move(reasons)}};
  if (options.prompt_logprobs && !completion.choices.empty()) {
    Ordered of_prompt = Ordered::array({nullptr});  // nothing predicts the first token
    for (const Sample& sample : completion.choices.front()->prompt_scores->of) of_prompt.push_back(by_token(sample));
    answer["prompt_logprobs"] = std::move(of_prompt);
  }
  if (options.logprobs || options.prompt_logprobs) answer["prompt_token_ids"] = prompt;
  if (options.logprobs) {
    answer["logprobs"] = std::move(logprobs);
    answer["token_ids"] = std::move(ids);
  }
  return answer.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

}  // namespace bascule::ref
