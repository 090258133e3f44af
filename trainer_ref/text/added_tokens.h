// tokenizer.json's added_tokens: tokens found in a text before the model sees it, including special ones.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/text/normalizer.h>
#include <bascule/trainer_ref/text/pattern.h>
#include <bascule/trainer_ref/text/vocabulary.h>

namespace bascule::ref {

struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  std::string sought;  // the text to find: the normalized content, if `is_normalized`
  bool single_word = false, strips_left = false, strips_right = false, is_normalized = false, is_special = false;
};

// A set of texts. Finds the leftmost first, and the longest of several at one place.
class Needles {
 public:
  void add(std::string text, std::uint32_t number);
  void finish();  // once all were added

  struct Found {
    Span span;
    std::uint32_t number = 0;
  };
  std::optional<Found> next(std::string_view text, std::size_t from) const;

 private:
  std::optional<Found> longest_at(std::string_view text, std::size_t at) const;

  std::vector<std::pair<std::string, std::uint32_t>> sorted_;
  std::array<std::uint32_t, 257> first_{};  // where the texts with each first byte begin
};

// Immutable; any thread may call it.
class AddedTokens {
 public:
  // `list` may be null. INVALID_ARGUMENT if malformed, or if an id is not the one that Hugging Face's tokenizers give.
  static absl::StatusOr<AddedTokens> read(const nlohmann::json& list, const Vocabulary& vocabulary,
                                          const Normalizer& normalizer);

  // A segment of the text that is an added token, or that lies between two of them.
  struct Part {
    Span span;
    const AddedToken* token = nullptr;
  };
  // Splits a text at the tokens that are found before, or after, it is normalized. No part is empty.
  absl::StatusOr<std::vector<Part>> split(std::string_view text, bool is_normalized) const;

  const AddedToken* find(std::int64_t id) const;           // null: no such token
  const AddedToken* find(std::string_view content) const;  // null: no such token
  std::int64_t ids() const;                                // one more than the largest id
  // The bytes of the longest token that is found after a text is normalized; 0 if there is none. None if such a token
  // takes the space around it, however much that is.
  std::optional<std::size_t> longest_normalized() const;

  void describe(std::string& out) const;

 private:
  absl::Status add(const nlohmann::json& value, const Vocabulary& vocabulary, const Normalizer& normalizer);
  absl::StatusOr<bool> is_word(std::string_view character) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<std::int64_t, std::uint32_t> by_id_;  // place in tokens_
  absl::flat_hash_map<std::string, std::uint32_t> by_content_;
  std::int64_t beyond_ = 0;  // tokens that the model's vocabulary does not have
  Needles raw_, normalized_;
  std::optional<Pattern> word_character_;  // if a token matches whole words only
};

}  // namespace bascule::ref
