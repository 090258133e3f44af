#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/engine/http/api.h>
#include <bascule/trainer_ref/http/exposition.h>
#include <bascule/transport/library_version.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

json model_json(const ModelCard& card, std::string_view id) {
  return {{"id", id},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "bascule"},
          {"max_model_len", card.max_model_len},
          {"max_completions", std::min(card.max_batch, card.max_choices)},
          {"max_batch", card.max_batch},
          {"takes_text", card.tokenizer.has_value()},
          {"takes_messages", card.chat.has_value()}};
}

// As vLLM lists it, and which version it serves.
json adapter_json(const ModelCard& card, const AdapterEntry& adapter) {
  json model = model_json(card, adapter.name);
  model["created"] = adapter.created;
  model["root"] = adapter.source;
  model["parent"] = card.id;
  model["active"] = card.adapters->active().value_or(AdapterEntry{}).id == adapter.id;
  model["ready"] = adapter.served.ready && adapter.unsound.ok();
  model["epoch"] = adapter.served.epoch;
  model["version"] = adapter.served.version;
  const absl::Status& error = adapter.unsound.ok() ? adapter.served.error : adapter.unsound;
  if (!error.ok()) model["error"] = std::string(message_of(error));
  return model;
}

std::vector<AdapterEntry> adapters_of(const ModelCard& card) {
  return card.adapters != nullptr ? card.adapters->all() : std::vector<AdapterEntry>();
}

}  // namespace

// Tokens of a byte-level vocabulary may cut a character in two: bytes that are not UTF-8 become U+FFFD.
std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string models_json(const ModelCard& card) {
  json models = json::array({model_json(card, card.id)});
  for (const std::string& id : card.other_ids) models.push_back(model_json(card, id));
  for (const AdapterEntry& adapter : adapters_of(card)) models.push_back(adapter_json(card, adapter));
  return dumped({{"object", "list"}, {"data", std::move(models)}});
}

std::string one_model_json(const ModelCard& card, std::string_view id) {
  if (!answers_to(card, id))
    for (const AdapterEntry& adapter : adapters_of(card))
      if (adapter.name == id) return dumped(adapter_json(card, adapter));
  return dumped(model_json(card, id));
}

std::string version_json() {
  return dumped({{"version", cat(BASCULE_VERSION_MAJOR, ".", BASCULE_VERSION_MINOR, ".", BASCULE_VERSION_PATCH)}});
}

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
  // The tokens put before every text; a tokenizer may also put one after it.
  const absl::StatusOr<std::vector<std::int64_t>> added = card.tokenizer->encode("", /*add_special_tokens=*/true);
  const bool begins =
      added.ok() && !added->empty() && std::find(ends.begin(), ends.end(), added->front()) == ends.end();
  const auto named = [&card](const char* name, json otherwise) {
    const auto found = card.special_tokens.find(name);
    return found == card.special_tokens.end() ? std::move(otherwise) : json(found->second);
  };
  return dumped({{"bos_token", named("bos_token", begins ? written(added->front()) : json())},
                 {"eos_token", named("eos_token", ends.empty() ? json() : written(ends.front()))},
                 {"pad_token", named("pad_token", nullptr)},
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
  for (const AdapterEntry& adapter : adapters_of(card))
    health["adapters"][adapter.name] = {{"ready", adapter.served.ready},
                                        {"active", card.adapters->active().value_or(AdapterEntry{}).id == adapter.id},
                                        {"epoch", adapter.served.epoch},
                                        {"version", adapter.served.version},
                                        {"attached", adapter.served.attached}};
  return dumped(health);
}

std::string metrics_text(const EngineStats& stats, const ModelCard& card) {
  Exposition page("bascule_engine_");
  page.family("device", "gauge", "Where it computes.");
  page.sample({{"device", card.device}}, 1);
  page.counter("requests_total", "Requests accepted.", stats.requests);
  page.counter("requests_rejected_total", "Requests answered 429.", stats.rejected);
  page.counter("requests_cancelled_total", "Requests whose client hung up.", stats.cancelled);
  page.counter("prompt_tokens_total", "Prompt tokens of accepted requests.", stats.prompt_tokens);
  page.counter("reused_tokens_total", "Tokens found in the cache, not computed.", stats.reused_tokens);
  page.counter("generated_tokens_total", "Tokens sampled.", stats.generated_tokens);
  page.counter("steps_total", "Steps run.", stats.steps);
  page.counter("preemptions_total", "Sequences put back because the cache was full.", stats.preemptions);
  page.gauge("running", "Sequences that run.", stats.running);
  page.gauge("waiting", "Sequences that wait.", stats.waiting);
  page.gauge("cache_blocks", "Blocks of the cache.", stats.blocks);
  page.gauge("cache_blocks_used", "Blocks held by sequences.", stats.blocks_used);
  page.gauge("version", "Version of the weights served; 0: a checkpoint's own, or none yet.", stats.served.version);
  page.gauge("epoch", "Epoch of the sender of these weights.", stats.served.epoch);
  if (const std::vector<AdapterEntry> adapters = adapters_of(card); !adapters.empty()) {
    page.family("adapter_version", "gauge", "Version of each adapter that is served.");
    for (const AdapterEntry& adapter : adapters)
      if (adapter.served.ready) page.sample({{"adapter", adapter.name}}, adapter.served.version);
  }
  page.counter("graphs_recorded_total", "Graphs recorded: shapes of steps, times slots.", stats.graphs.recorded);
  page.counter("graph_replays_total", "Steps that were replayed as a graph.", stats.graphs.replayed);
  page.gauge("sleeping", "1 while the cache is released, or about to be.", stats.asleep ? 1 : 0);
  page.gauge("paused", "1 while no request begins.", stats.paused ? 1 : 0);
  page.gauge("serving", "1 while a version is served.", stats.served.ready ? 1 : 0);
  page.counter("flips_total", "Versions flipped to.", stats.flips);
  page.counter("stall_seconds_total", "Seconds that flips kept the engine from stepping.", stats.stall_seconds);
  return page.text();
}

}  // namespace bascule::ref
