// Answers of /generate and /chat, as TRL's older server gave them.
#pragma once

#include <string>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/schedule/completion.h>

namespace bascule::ref {

// {"prompt_ids": [[1, 2]], "completion_ids": [[3]], "logprobs": [[[-0.1]]], "logprob_token_ids": [[[3]]]}, or in the
// older form without the last, and {"logprobs": [[-0.1]]}.
std::string trl_answer(const AnswerOptions& options, const Completion& completion);

}  // namespace bascule::ref
