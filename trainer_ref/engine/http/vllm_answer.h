// Answers of /generate, as vLLM's own small server and the one of Atropos give them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/schedule/completion.h>

namespace bascule::ref {

// {"text": ["3"], "prompt": "1+2=", "finish_reasons": ["stop"]}, and with log-probabilities {"logprobs": [[[{"7":
// -0.1}]]], "prompt_token_ids": [1, 2], "token_ids": [[7]]}: for each token a list of one object, whose first key is
// the token. `choices` are in OpenAI's form.
std::string vllm_answer(const nlohmann::json& choices, const AnswerOptions& options, const Completion& completion,
                        const ModelCard& card);

}  // namespace bascule::ref
