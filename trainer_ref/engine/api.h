// What the HTTP interface says and understands: OpenAI's /v1/completions as JSON, and Prometheus' text. No
// sockets here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/completion.h>

namespace bascule::ref {

// The model as its clients see it.
struct ModelCard {
  std::string id;  // its folder's name
  std::int64_t vocab_size = 0;
  std::vector<std::int64_t> eos_token_ids;
  std::int64_t max_model_len = 0;   // tokens, prompt and completion together
  std::int64_t max_batch = 0;       // the most completions of one prompt
  std::int64_t max_choices = 1024;  // prompts times n in one request
  std::string worker;
  std::string device = "cpu";  // where it computes
  // Text to token ids and back, where the tokenizer can be read; `no_text` says why it cannot.
  std::function<absl::StatusOr<std::vector<std::int64_t>>(std::string_view)> encode;
  std::function<std::string(std::span<const std::int64_t>)> decode;
  absl::Status no_text;
};

// INVALID_ARGUMENT says which field, what was found and what would do; an unknown field names the nearest
// known one. NOT_FOUND: another model is asked for. Without `seed`, the one given here is used.
absl::StatusOr<CompletionRequest> parse_completion(std::string_view json, const ModelCard& card, std::uint64_t seed);

// OpenAI's text_completion. Each choice has index, text, token_ids, logprobs.token_logprobs, epochs and versions (a
// number of each for each token: the weights that made it, and the run of the sender of these) and finish_reason.
std::string completion_json(RequestId id, const Completion& completion, std::int64_t n, const ModelCard& card);

std::string error_json(int http_status, std::string_view message);
std::string models_json(const ModelCard& card);

// `state` is "serving", "joining" (no version yet), "failed", "sleeping" or "draining".
std::string health_json(const EngineStats& stats, std::string_view state, const ModelCard& card);
std::string sleeping_json(const EngineStats& stats);  // {"is_sleeping": true}
std::string metrics_text(const EngineStats& stats, const ModelCard& card);

}  // namespace bascule::ref
