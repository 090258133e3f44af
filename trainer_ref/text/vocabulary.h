// A model's own tokens: texts by id and ids by text.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace bascule::ref {

// Far beyond any vocabulary, and yet small enough for a table by id.
inline constexpr std::int64_t kMaxTokenId = (std::int64_t{1} << 24) - 1;

bool is_token_id(const nlohmann::json& value);

// Immutable; moved, not copied, since ids are found by views of the texts.
class Vocabulary {
 public:
  // Reads an object {"text": id, ...}. Returns INVALID_ARGUMENT if `object` is not such an object, or if two tokens
  // have the same id.
  static absl::StatusOr<Vocabulary> read(const nlohmann::json& object);

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::optional<std::int32_t> id_of(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // Returns null if no token has the id.
  const std::string* text_of(std::int64_t id) const;

  std::size_t size() const { return ids_.size(); }                               // tokens
  std::int64_t ids() const { return static_cast<std::int64_t>(texts_.size()); }  // one more than the largest id

 private:
  std::vector<std::string> texts_;  // by id; an id may be free
  absl::flat_hash_map<std::string_view, std::int32_t, std::hash<std::string_view>, std::equal_to<>> ids_;
};

}  // namespace bascule::ref
