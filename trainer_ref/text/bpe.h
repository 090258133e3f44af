// Byte-pair encoding: a word's characters, merged pair by pair in the order of the merges.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include <bascule/trainer_ref/text/token_model.h>

namespace bascule::ref {

// The result of merging two neighbours. Of all pairs of a word, the one with the lowest rank is merged first; of
// several, the leftmost.
struct Merge {
  static constexpr std::uint32_t kNone = UINT32_MAX;
  std::uint32_t rank = kNone;
  std::int32_t id = -1;
};

class Merges {
 public:
  // `list` holds pairs, ["a", "b"] or "a b". Returns INVALID_ARGUMENT if a pair, or its result, is no token.
  static absl::StatusOr<Merges> read(const nlohmann::json& list, const Vocabulary& vocabulary);

  // Merges `symbols` until no pair can be merged, or `stop` was requested.
  void apply(std::vector<std::int32_t>& symbols, const std::stop_token& stop = {}) const;

  void describe(std::string& out) const;

 private:
  Merge find(std::int32_t left, std::int32_t right) const;
  std::size_t apply_short(std::int32_t* symbols, std::size_t count) const;  // the count that is left
  std::size_t apply_long(std::int32_t* symbols, std::size_t count, const std::stop_token& stop) const;

  absl::flat_hash_map<std::uint64_t, Merge> merges_;  // by both ids
};

class Bpe : public TokenModel {
 public:
  static absl::StatusOr<std::unique_ptr<Bpe>> read(const nlohmann::json& model, const Vocabulary& vocabulary);

  absl::Status encode(std::string_view word, std::vector<std::int64_t>& token_ids,
                      const std::stop_token& stop) const override;
  std::optional<std::size_t> longest_token(bool is_byte_level) const override;
  void describe(std::string& out) const override;

 private:
  explicit Bpe(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  std::optional<std::int32_t> id_of_character(std::string_view character) const;
  absl::Status add_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void find_whole_tokens();

  static constexpr std::size_t kDirect = 0x180;  // code points of byte-level vocabularies, found by a table

  const Vocabulary& vocabulary_;
  Merges merges_;
  std::array<std::int32_t, kDirect> direct_{};          // id of a character; -1: none
  std::array<std::optional<std::int32_t>, 256> bytes_;  // ids of "<0x00>" to "<0xFF>"
  std::vector<bool> whole_;                             // tokens whose own text merges to them
  std::optional<std::string> unknown_;                  // unk_token
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace bascule::ref
