// Clients' requests: the bodies of /v1/completions, /v1/chat/completions, /tokenize and /detokenize, as JSON, checked
// against the model. docs/guide/engine-api.md lists the fields. No sockets here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/http/model_card.h>
#include <bascule/trainer_ref/engine/schedule/completion.h>

namespace bascule::ref {

using Prompts = std::vector<std::vector<std::int64_t>>;

enum class AnswerForm {
  kOpenAi,
  kTrl,       // of TRL's older server (trl_answer.h)
  kOlderTrl,  // of that server before TRL 0.29
  kVllm,      // of vLLM's own small server (vllm_answer.h)
};

// How a client wants to read its answer.
struct AnswerOptions {
  AnswerForm form = AnswerForm::kOpenAi;
  bool chat = false;
  bool stream = false;
  bool include_usage = false;  // of a stream
  bool echo = false;
  std::optional<std::int64_t> logprobs;  // how many of the likeliest tokens to return beside each; nullopt: none
  bool prompt_logprobs = false;          // vLLM's field; with `echo`, the log-probabilities cover the prompt
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // "token_id:7" in place of a token's text
  bool include_stop = false;
  bool with_special_tokens = false;                      // in texts
  std::shared_ptr<const std::vector<std::string>> stop;  // null: none
  std::vector<std::int64_t> stop_token_ids;              // sorted: all that end a completion
  std::vector<std::int64_t> asked_stop_ids;              // the ones that the request names
  std::int64_t min_tokens = 0;                           // so many tokens come before a stop string may end the text
  std::int64_t n = 1;                                    // completions of each prompt
  std::string adapter = {};                              // its name; empty: the model itself
  std::int64_t best = 0;                                 // of them, only the so many likeliest are returned; 0: all
  Prompts prompts;                                       // if the answer reports them, else empty
  Prompts prompt_tails;  // of each prompt the last tokens, if it is not in the text; else empty
};

struct ApiRequest {
  CompletionRequest completion;
  AnswerOptions answer;
  std::vector<std::string> ignored;  // names of unknown fields
};

// Both encode the texts, which may take seconds. `seed` is used if the request has none. INVALID_ARGUMENT names the
// wrong field, what was found there and what is expected. Returns NOT_FOUND for another model's name, and CANCELLED
// soon after `stop` was requested.
absl::StatusOr<ApiRequest> parse_completion(std::string_view json, const ModelCard& card, std::uint64_t seed,
                                            const std::stop_token& stop = {});
absl::StatusOr<ApiRequest> parse_chat(std::string_view json, const ModelCard& card, std::uint64_t seed,
                                      const std::stop_token& stop = {});

// The same for /generate, of vLLM's own small server or of TRL's older one, which differ in their fields.
absl::StatusOr<ApiRequest> parse_generate(std::string_view json, const ModelCard& card, std::uint64_t seed,
                                          const std::stop_token& stop = {});
// The same for TRL's older server.
absl::StatusOr<ApiRequest> parse_trl_generate(std::string_view json, const ModelCard& card, std::uint64_t seed,
                                              const std::stop_token& stop = {});
absl::StatusOr<ApiRequest> parse_trl_chat(std::string_view json, const ModelCard& card, std::uint64_t seed,
                                          const std::stop_token& stop = {});

struct TokenizeRequest {
  std::vector<std::int64_t> tokens;
  bool with_texts = false;
  std::vector<std::string> ignored;
};
absl::StatusOr<TokenizeRequest> parse_tokenize(std::string_view json, const ModelCard& card,
                                               const std::stop_token& stop = {});

struct DetokenizeRequest {
  std::vector<std::int64_t> tokens;
  std::vector<std::string> ignored;
};
absl::StatusOr<DetokenizeRequest> parse_detokenize(std::string_view json, const ModelCard& card);

}  // namespace bascule::ref
