#include <algorithm>
#include <array>
#include <ctime>
#include <string>

#include "nlohmann/json.hpp"
#include <bascule/trainer_ref/engine/api.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

// Tokens of a byte-level vocabulary may cut a character in two: what is no UTF-8 becomes U+FFFD.
std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort:
    case FinishReason::kNone: break;
  }
  return "abort";
}

// The completion's text: without the token that ended it.
std::string text_of(const Sequence& sequence, const ModelCard& card) {
  std::span<const std::int64_t> tokens = sequence.completion();
  if (sequence.finish == FinishReason::kStop) tokens = tokens.first(tokens.size() - 1);
  return card.decode ? card.decode(tokens) : "";
}

}  // namespace

std::string completion_json(RequestId id, const Completion& completion, std::int64_t n, const ModelCard& card) {
  json choices = json::array();
  std::size_t prompt_tokens = 0, completion_tokens = 0;
  for (const auto& sequence : completion.choices) {
    // A prompt counts once, whatever n is.
    if (sequence->choice % static_cast<std::uint64_t>(n) == 0) prompt_tokens += sequence->prompt_tokens;
    completion_tokens += sequence->generated();
    choices.push_back({{"index", sequence->choice},
                       {"text", text_of(*sequence, card)},
                       {"token_ids", sequence->completion()},
                       {"logprobs", {{"token_logprobs", sequence->logprobs}}},
                       {"epochs", sequence->epochs},
                       {"versions", sequence->versions},
                       {"finish_reason", finish_name(sequence->finish)}});
  }
  return dumped({{"id", cat("cmpl-", id)},
                 {"object", "text_completion"},
                 {"created", std::time(nullptr)},
                 {"model", card.id},
                 {"choices", std::move(choices)},
                 {"usage",
                  {{"prompt_tokens", prompt_tokens},
                   {"completion_tokens", completion_tokens},
                   {"total_tokens", prompt_tokens + completion_tokens}}}});
}

std::string error_json(int http_status, std::string_view message) {
  const char* type = http_status == 429  ? "overloaded_error"
                     : http_status < 500 ? "invalid_request_error"
                                         : "server_error";
  return dumped({{"error", {{"message", message}, {"type", type}, {"code", http_status}}}});
}

std::string models_json(const ModelCard& card) {
  return dumped({{"object", "list"},
                 {"data",
                  {{{"id", card.id},
                    {"object", "model"},
                    {"owned_by", "bascule"},
                    {"max_model_len", card.max_model_len},
                    {"max_completions", std::min(card.max_batch, card.max_choices)},
                    {"takes_text", static_cast<bool>(card.encode)}}}}});
}

std::string health_json(const EngineStats& stats, std::string_view state, const ModelCard& card) {
  json health{{"state", state},        {"version", stats.served.version}, {"epoch", stats.served.epoch},
              {"worker", card.worker}, {"device", card.device},           {"attached", stats.served.attached}};
  if (!stats.served.error.ok()) health["error"] = std::string(message_of(stats.served.error));
  return dumped(health);
}

std::string sleeping_json(const EngineStats& stats) { return dumped({{"is_sleeping", stats.asleep}}); }

std::string metrics_text(const EngineStats& stats, const ModelCard& card) {
  std::string text = cat("# HELP bascule_engine_device Where it computes.\n# TYPE bascule_engine_device gauge\n",
                         "bascule_engine_device{device=\"", card.device, "\"} 1\n");
  const auto metric = [&text](std::string_view name, std::string_view type, std::string_view help, auto value) {
    text += cat("# HELP bascule_engine_", name, " ", help, "\n# TYPE bascule_engine_", name, " ", type,
                "\nbascule_engine_", name, " ", value, "\n");
  };
  metric("requests_total", "counter", "Requests accepted.", stats.requests);
  metric("requests_rejected_total", "counter", "Requests answered 429.", stats.rejected);
  metric("requests_cancelled_total", "counter", "Requests whose client hung up.", stats.cancelled);
  metric("prompt_tokens_total", "counter", "Prompt tokens of accepted requests.", stats.prompt_tokens);
  metric("reused_tokens_total", "counter", "Prompt tokens found in the cache.", stats.reused_tokens);
  metric("generated_tokens_total", "counter", "Tokens sampled.", stats.generated_tokens);
  metric("steps_total", "counter", "Steps run.", stats.steps);
  metric("preemptions_total", "counter", "Sequences put back because the cache was full.", stats.preemptions);
  metric("running", "gauge", "Sequences that run.", stats.running);
  metric("waiting", "gauge", "Sequences that wait.", stats.waiting);
  metric("cache_blocks", "gauge", "Blocks of the cache.", stats.blocks);
  metric("cache_blocks_used", "gauge", "Blocks held by sequences.", stats.blocks_used);
  metric("version", "gauge", "Version of the weights served; 0: a checkpoint's own, or none yet.",
         stats.served.version);
  metric("epoch", "gauge", "Epoch of the sender of these weights.", stats.served.epoch);
  metric("graphs_recorded_total", "counter", "Graphs recorded: shapes of steps, times slots.", stats.graphs.recorded);
  metric("graph_replays_total", "counter", "Steps that were replayed as a graph.", stats.graphs.replayed);
  metric("sleeping", "gauge", "1 while the cache is released, or about to be.", stats.asleep ? 1 : 0);
  metric("serving", "gauge", "1 while a version is served.", stats.served.ready ? 1 : 0);
  metric("flips_total", "counter", "Versions flipped to.", stats.flips);
  metric("stall_seconds_total", "counter", "Seconds that flips kept the engine from stepping.", stats.stall_seconds);
  return text;
}

}  // namespace bascule::ref
