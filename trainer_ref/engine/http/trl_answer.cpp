#include <bascule/trainer_ref/engine/http/trl_answer.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/api.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

// The token that was drawn and the likeliest ones, the likeliest first.
std::vector<TokenLogprob> likeliest(const Sample& sample) {
  std::vector<TokenLogprob> all = sample.top;
  if (std::none_of(all.begin(), all.end(), [&](const TokenLogprob& each) { return each.token == sample.token; }))
    all.push_back({.token = sample.token, .logprob = sample.logprob});
  std::stable_sort(all.begin(), all.end(),
                   [](const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob; });
  return all;
}

}  // namespace

std::string trl_answer(const AnswerOptions& options, const Completion& completion) {
  json ids = json::array(), logprobs = json::array(), logprob_ids = json::array();
  const bool older = options.form == AnswerForm::kOlderTrl;
  for (const auto& sequence : completion.choices) {
    ids.push_back(sequence->completion());
    json values = json::array(), tokens = json::array();
    for (const Sample& sample : sequence->samples) {
      json each = json::array(), each_tokens = json::array();
      for (const TokenLogprob& token : likeliest(sample)) {
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
