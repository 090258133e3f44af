// The HTTP interface's answers besides completions (answer.h): OpenAI's and vLLM's forms as JSON, and Prometheus' text.
// No sockets here.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/model_card.h>
#include <bascule/trainer_ref/engine/schedule/completion.h>

namespace bascule::ref {

std::string dumped(const nlohmann::json& value);

std::string models_json(const ModelCard& card);
std::string one_model_json(const ModelCard& card, std::string_view id);
std::string version_json();  // {"version": "0.1.0"}, as in vLLM

// In vLLM's form: {"count", "max_model_len", "tokens", "token_strs"}, and {"prompt"}.
std::string tokenize_json(const TokenizeRequest& request, const ModelCard& card);
std::string detokenize_json(const DetokenizeRequest& request, const ModelCard& card);
// The tokens that begin and end a text, as the tokenizer writes them; null if there is none. Needs a tokenizer.
std::string tokenizer_info_json(const ModelCard& card);

// Writes names of fields for a header, as "a, b": at most 16 names, each of at most 40 bytes. Characters other than
// letters, digits and "_-." become %XX.
std::string header_list(std::span<const std::string> names);

// `state` is "serving", "joining" (no version yet), "failed", "paused", "sleeping" or "draining".
std::string health_json(const EngineStats& stats, std::string_view state, const ModelCard& card);
std::string metrics_text(const EngineStats& stats, const ModelCard& card);

}  // namespace bascule::ref
