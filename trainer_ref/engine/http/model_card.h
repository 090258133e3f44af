// The model as the engine's clients see it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/chat_template.h>
#include <bascule/trainer_ref/engine/schedule/adapters.h>
#include <bascule/trainer_ref/engine/schedule/sampler.h>
#include <bascule/trainer_ref/text/tokenizer.h>

namespace bascule::ref {

// What holds for requests that do not choose.
struct RequestDefaults {
  SamplingParams sampling;
  std::optional<std::int64_t> max_tokens;  // none: as many as fit
  std::vector<std::string> unapplied;      // keys of generation_config.json that count only in transformers
};

struct ModelCard {
  std::string id;                      // its name in answers
  std::vector<std::string> other_ids;  // further names, listed like the first
  std::vector<std::string> paths;      // of its folder: requests may also name these
  std::int64_t created = 0;            // seconds since 1970: when the engine began to serve it
  std::int64_t vocab_size = 0;
  std::vector<std::int64_t> eos_token_ids;
  std::int64_t max_model_len = 0;   // tokens, prompt and completion together
  std::int64_t max_batch = 0;       // the most completions of one prompt
  std::int64_t max_choices = 1024;  // prompts times n in one request
  std::string worker;
  std::string sync;            // the endpoint of the trainer whose versions it serves; empty: none
  std::string device = "cpu";  // where it computes
  bool bf16 = false;           // the type of its weights; else f32
  // Text to token ids and back, if the tokenizer can be read; `no_text` says why it cannot.
  std::optional<Tokenizer> tokenizer;
  absl::Status no_text;
  std::map<std::string, std::string> special_tokens;  // by name, as "eos_token"
  // Messages to text, if the checkpoint has a supported template; `no_chat` says why not.
  std::optional<ChatTemplate> chat;
  absl::Status no_chat;
  LogprobsMode logprobs = LogprobsMode::kRaw;  // for requests that do not choose
  RequestDefaults defaults;
  const AdapterDirectory* adapters = nullptr;  // that requests may name; null: none
};

// Names the model: by `served`, or, if that is empty, by `folder`, which is as it was given to --model. A folder of
// Hugging Face's cache, models--ORG--NAME/snapshots/REVISION, is named ORG/NAME; another folder by its last part.
void name_model(ModelCard& card, const std::filesystem::path& folder, std::vector<std::string> served);

// Whether a request for the model `name` is for this one. An empty name is for any model.
bool answers_to(const ModelCard& card, std::string_view name);

// The adapter that a request for `name` is for: its id is kNoAdapter if it is for the model itself. NOT_FOUND, with
// `shown` in its text, if there is no such model.
absl::StatusOr<AdapterEntry> find_model(const ModelCard& card, std::string_view name, std::string_view shown);

// The error for another model's name, `shown` as the client gave it.
absl::Status not_served(const ModelCard& card, std::string_view shown);

}  // namespace bascule::ref
