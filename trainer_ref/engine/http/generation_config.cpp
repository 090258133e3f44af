#include <bascule/trainer_ref/engine/http/generation_config.h>

#include <limits>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/sampling_fields.h>
#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

namespace {

using nlohmann::json;

// Keys that change what transformers generates, each with its neutral value. Null and an empty value are also neutral.
const std::vector<std::pair<const char*, json>>& unread_keys() {
  static const auto* const keys = new std::vector<std::pair<const char*, json>>{
      {"suppress_tokens", nullptr},
      {"begin_suppress_tokens", nullptr},
      {"bad_words_ids", nullptr},
      {"sequence_bias", nullptr},
      {"forced_bos_token_id", nullptr},
      {"forced_eos_token_id", nullptr},
      {"stop_strings", nullptr},
      {"min_length", 0},
      {"min_new_tokens", 0},
      {"no_repeat_ngram_size", 0},
      {"encoder_no_repeat_ngram_size", 0},
      {"encoder_repetition_penalty", 1},
      {"exponential_decay_length_penalty", nullptr},
      {"num_beams", 1},
      {"penalty_alpha", 0},
      {"typical_p", 1},
      {"top_h", nullptr},
      {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},
      {"guidance_scale", 1},
      {"dola_layers", nullptr},
      {"watermarking_config", nullptr},
  };
  return *keys;
}

}  // namespace

absl::StatusOr<RequestDefaults> read_generation_config(const std::filesystem::path& file) {
  BASCULE_ASSIGN(const nlohmann::json object, read_json_object(file));
  Fields fields(object);
  RequestDefaults defaults;
  read_distribution(fields, defaults.sampling);
  std::int64_t most = 0;
  fields.integer("max_new_tokens", most, std::int64_t{1}, std::numeric_limits<std::int64_t>::max());
  if (!fields.status.ok()) return annotate(fields.status, file.string());
  if (most > 0) defaults.max_tokens = most;
  for (const auto& [key, neutral] : unread_keys())
    if (const json* value = fields.find(key); value != nullptr && !value->empty() && *value != neutral)
      defaults.unapplied.emplace_back(key);
  return defaults;
}

std::string changes_of(const RequestDefaults& defaults) {
  const SamplingParams& found = defaults.sampling;
  const SamplingParams plain;
  std::string text;
  const auto add = [&text](const char* name, auto value, auto otherwise) {
    if (value != otherwise) text += cat(text.empty() ? "" : ", ", name, " ", value);
  };
  add("temperature", found.temperature, plain.temperature);
  add("top_k", found.top_k, plain.top_k);
  add("top_p", found.top_p, plain.top_p);
  add("min_p", found.min_p, plain.min_p);
  add("repetition_penalty", found.adjustments.repetition_penalty, plain.adjustments.repetition_penalty);
  add("max_tokens", defaults.max_tokens.value_or(0), std::int64_t{0});
  return text;
}

}  // namespace bascule::ref
