// Log-probabilities as clients read them: in OpenAI's two forms and, for prompts, in vLLM's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/schedule/sequence.h>

namespace bascule::ref {

// The `count` likeliest tokens, then the token itself if it is not among them, which makes it the least likely.
std::vector<TokenLogprob> with_itself(const Sample& sample, std::int64_t count);

// /v1/completions: lists of tokens, token_logprobs, top_logprobs (as in vLLM, with at least the token itself) and
// text_offset.
class LogprobLists {
 public:
  LogprobLists(const AnswerOptions& options, const ModelCard& card);
  // `offset` is the number of characters of the text before the token.
  void add(const Sample& sample, std::size_t offset);
  void add_unknown(std::int64_t token, std::size_t offset);  // nothing is known of a text's first token
  nlohmann::json take();

 private:
  void add_token(std::int64_t token, std::size_t offset);

  const AnswerOptions& options_;
  const ModelCard& card_;
  nlohmann::json tokens_, logprobs_, top_, offsets_;
};

// /v1/chat/completions: an element of "content".
nlohmann::json chat_logprob(const Sample& sample, const AnswerOptions& options, const ModelCard& card);

// Returns a list as long as the prompt: null for its first token, then for each token an object with this token and the
// likeliest ones, by id.
nlohmann::json prompt_logprobs(std::span<const std::int64_t> prompt, const PromptScores& scores,
                               const AnswerOptions& options, const ModelCard& card);

}  // namespace bascule::ref
