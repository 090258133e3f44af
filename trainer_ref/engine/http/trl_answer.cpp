#include <bascule/trainer_ref/engine/http/trl_answer.h>

#include <utility>

#include <bascule/trainer_ref/engine/http/api.h>
#include <bascule/trainer_ref/engine/http/logprobs_json.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

}  // namespace

std::string trl_answer(const AnswerOptions& options, const Completion& completion) {
  json ids = json::array(), logprobs = json::array(), logprob_ids = json::array();
  const bool older = options.form == AnswerForm::kOlderTrl;
  for (const auto& sequence : completion.choices) {
    ids.push_back(sequence->completion());
    json values = json::array(), tokens = json::array();
    for (const Sample& sample : sequence->samples) {
      json each = json::array(), each_tokens = json::array();
      for (const TokenLogprob& token : with_itself(sample, options.logprobs.value_or(0))) {
        each.push_back(token.logprob);
        each_tokens.push_back(token.token);
      }
      values.push_back(older ? json(sample.logprob) : std::move(each));
      tokens.push_back(std::move(each_tokens));
    }
    logprobs.push_back(std::move(values));
    logprob_ids.push_back(std::move(tokens));
  }
  json answer{{"prompt_ids", options.prompts}, {"completion_ids", std::move(ids)}};
  answer["logprobs"] = options.logprobs ? std::move(logprobs) : json();
  if (!older) answer["logprob_token_ids"] = options.logprobs ? std::move(logprob_ids) : json();
  return dumped(answer);
}

}  // namespace bascule::ref
