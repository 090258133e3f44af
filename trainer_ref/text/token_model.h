// tokenizer.json's model: turns one pre-token into token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/text/vocabulary.h>

namespace bascule::ref {

// Immutable; any thread may call it.
class TokenModel {
 public:
  TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;
  virtual ~TokenModel() = default;

  // Appends the ids of `word`, which is not empty. INVALID_ARGUMENT names what the vocabulary lacks. Once `stop` was
  // requested, it may append anything.
  virtual absl::Status encode(std::string_view word, std::vector<std::int64_t>& token_ids,
                              const std::stop_token& stop) const = 0;

  // The most bytes of a word that become one token. None if there is no bound, because text that the vocabulary lacks
  // is left out, or becomes one token. `is_byte_level`: words have byte_level.h's characters, which count as a byte.
  virtual std::optional<std::size_t> longest_token(bool is_byte_level) const = 0;

  // Appends everything besides the vocabulary.
  virtual void describe(std::string& out) const = 0;
};

// Both refer to `vocabulary`, which must outlive them.
absl::StatusOr<std::unique_ptr<TokenModel>> read_bpe(const nlohmann::json& model, const Vocabulary& vocabulary);
absl::StatusOr<std::unique_ptr<TokenModel>> read_word_level(const nlohmann::json& model, const Vocabulary& vocabulary);

// Returns INVALID_ARGUMENT for a text in which no token was found.
absl::Status no_token(std::string_view text);

}  // namespace bascule::ref
