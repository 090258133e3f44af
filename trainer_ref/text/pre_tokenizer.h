// tokenizer.json's pre_tokenizer: Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit,
// Sequence.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/text/pre_tokens.h>

namespace bascule::ref {

// Immutable; any thread may call it.
class PreTokenizer {
 public:
  // UNIMPLEMENTED names an unsupported pre_tokenizer. `part` may be null.
  static absl::StatusOr<PreTokenizer> read(const nlohmann::json& part);

  absl::Status apply(PreTokens& pre_tokens) const;

  bool removes_text() const;
  bool writes_bytes() const;  // as byte_level.h's characters

  void describe(std::string& out) const;

 private:
  struct Split {
    Pattern pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool inverted = false;
  };
  enum class Scheme { kAlways, kFirst, kNever };
  struct Prepend {  // to each pre-token that does not begin with it
    std::string text;
    Scheme scheme = Scheme::kAlways;
  };
  struct ReplaceSpaces {
    std::string replacement;
  };
  struct Bytes {};  // the characters that represent bytes
  using Step = std::variant<Split, Prepend, ReplaceSpaces, Bytes>;

  absl::Status add(const nlohmann::json& part);
  absl::Status add_split(const nlohmann::json& part);
  absl::Status add_byte_level(const nlohmann::json& part);
  absl::Status add_metaspace(const nlohmann::json& part);
  absl::Status add_regex(std::string_view expression, SplitBehavior behavior, bool inverted = false);

  static absl::Status apply(const Split& step, PreTokens& pre_tokens);
  static absl::Status apply(const Prepend& step, PreTokens& pre_tokens);
  static absl::Status apply(const ReplaceSpaces& step, PreTokens& pre_tokens);
  static absl::Status apply(const Bytes& step, PreTokens& pre_tokens);

  std::vector<Step> steps_;
};

}  // namespace bascule::ref
