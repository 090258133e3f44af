// The model as the engine's clients see it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/chat/chat_template.h>
#include <bascule/trainer_ref/engine/schedule/sampler.h>
#include <bascule/trainer_ref/text/tokenizer.h>

namespace bascule::ref {

struct ModelCard {
  std::string id;            // its folder's name
  std::int64_t created = 0;  // seconds since 1970: when the engine began to serve it
  std::int64_t vocab_size = 0;
  std::vector<std::int64_t> eos_token_ids;
  std::int64_t max_model_len = 0;   // tokens, prompt and completion together
  std::int64_t max_batch = 0;       // the most completions of one prompt
  std::int64_t max_choices = 1024;  // prompts times n in one request
  std::string worker;
  std::string device = "cpu";  // where it computes
  // Text to token ids and back, if the tokenizer can be read; `no_text` says why it cannot.
  std::optional<Tokenizer> tokenizer;
  absl::Status no_text;
  std::map<std::string, std::string> special_tokens;  // by name, as "eos_token"
  // Messages to text, if the checkpoint has a supported template; `no_chat` says why not.
  std::optional<ChatTemplate> chat;
  absl::Status no_chat;
  LogprobsMode logprobs = LogprobsMode::kRaw;  // for requests that do not choose
};

}  // namespace bascule::ref
