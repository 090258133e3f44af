// The pattern of a part of tokenizer.json: a text, or a regular expression.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/text/regex.h>

namespace bascule::ref {

// A segment of a text that the pattern matches, or one between two matches.
struct Segment {
  Span span;
  bool is_match = false;
};

// Immutable; any thread may call it.
class Pattern {
 public:
  // Reads {"String": "..."} or {"Regex": "..."}; `kind` names the part in errors.
  static absl::StatusOr<Pattern> read(const nlohmann::json& value, std::string_view kind);
  static Pattern text(std::string_view text);
  // Makes the pattern from a regular expression in Oniguruma's syntax.
  static absl::StatusOr<Pattern> regex(std::string_view expression);

  // Appends the segments of `span`, in order and without gaps; text outside the span is not read. A match may be empty.
  absl::Status find(std::string_view text, Span span, std::vector<Segment>& segments) const;

  // Returns the pattern if it is a single character; otherwise an empty text.
  std::string_view single_character() const;

  std::string describe() const;

 private:
  std::string source_;
  std::optional<Regex> regex_;
};

}  // namespace bascule::ref
