#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/engine/api.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

json model_json(const ModelCard& card) {
  return {{"id", card.id},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "bascule"},
          {"max_model_len", card.max_model_len},
          {"max_completions", std::min(card.max_batch, card.max_choices)},
          {"max_batch", card.max_batch},
          {"takes_text", card.tokenizer.has_value()},
          {"takes_messages", card.chat.has_value()}};
}

}  // namespace

// Tokens of a byte-level vocabulary may cut a character in two: what is no UTF-8 becomes U+FFFD.
std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string error_json(int http_status, std::string_view message) {
  const char* type = http_status == 429   ? "overloaded_error"
                     : http_status == 401 ? "authentication_error"
                     : http_status < 500  ? "invalid_request_error"
                                          : "server_error";
  return dumped({{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", http_status}}}});
}

std::string models_json(const ModelCard& card) {
  return dumped({{"object", "list"}, {"data", json::array({model_json(card)})}});
}

std::string one_model_json(const ModelCard& card) { return dumped(model_json(card)); }

std::string tokenize_json(const TokenizeRequest& request, const ModelCard& card) {
  json texts;
  if (request.with_texts) {
    texts = json::array();
    for (const std::int64_t id : request.tokens)
      texts.push_back(std::string(card.tokenizer->token_of(id).value_or(std::string_view())));
  }
  return dumped({{"count", request.tokens.size()},
                 {"max_model_len", card.max_model_len},
                 {"tokens", request.tokens},
                 {"token_strs", std::move(texts)}});
}

std::string detokenize_json(const DetokenizeRequest& request, const ModelCard& card) {
  return dumped({{"prompt", card.tokenizer->decode(request.tokens, /*with_special_tokens=*/true)}});
}

std::string tokenizer_info_json(const ModelCard& card) {
  const auto written = [&card](std::int64_t id) -> json {
    const std::optional<std::string_view> token = card.tokenizer->token_of(id);
    return token ? json(std::string(*token)) : json();
  };
  const std::vector<std::int64_t>& ends = card.eos_token_ids;
  // What is put before every text; a tokenizer may put an end behind it, too.
  const absl::StatusOr<std::vector<std::int64_t>> added = card.tokenizer->encode("", /*add_special_tokens=*/true);
  const bool begins =
      added.ok() && !added->empty() && std::find(ends.begin(), ends.end(), added->front()) == ends.end();
  return dumped({{"bos_token", begins ? written(added->front()) : json()},
                 {"eos_token", ends.empty() ? json() : written(ends.front())},
                 {"pad_token", nullptr},
                 {"model_max_length", card.max_model_len}});
}

std::string header_list(std::span<const std::string> names) {
  constexpr std::size_t kMostNames = 16, kMostBytes = 40;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    if (i > 0) list += ", ";
    const std::string& name = names[i];
    if (name.empty()) list += "\"\"";  // an empty header would name nothing
    for (const char byte : name.substr(0, kMostBytes)) {
      const bool plain =
          absl::ascii_isalnum(static_cast<unsigned char>(byte)) || byte == '_' || byte == '-' || byte == '.';
      list += plain ? std::string(1, byte) : absl::StrFormat("%%%02X", static_cast<unsigned char>(byte));
    }
    if (name.size() > kMostBytes) list += "...";
  }
  if (names.size() > kMostNames) list += cat(", and ", names.size() - kMostNames, " more");
  return list;
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
  metric("reused_tokens_total", "counter", "Tokens found in the cache, not computed.", stats.reused_tokens);
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
