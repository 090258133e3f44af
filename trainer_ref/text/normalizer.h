// tokenizer.json's normalizer: NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, ByteLevel, Sequence.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/text/pre_tokens.h>
#include <bascule/trainer_ref/text/unicode.h>

namespace bascule::ref {

// Immutable; any thread may call it.
class Normalizer {
 public:
  // UNIMPLEMENTED names an unsupported normalizer. `part` may be null.
  static absl::StatusOr<Normalizer> read(const nlohmann::json& part);

  absl::Status apply(Section& section) const;

  // How many bytes of a text become at least one byte. None if there is no bound.
  std::optional<std::size_t> most_shrinkage() const;
  bool writes_bytes() const;  // as byte_level.h's characters

  void describe(std::string& out) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left = false, right = false;
  };
  struct ByteLevel {};
  using Step = std::variant<NormalForm, Prepend, Replace, Strip, ByteLevel>;

  absl::Status add(const nlohmann::json& part);

  static absl::Status apply(NormalForm form, Section& section);
  static absl::Status apply(const Prepend& step, Section& section);
  static absl::Status apply(const Replace& step, Section& section);
  static absl::Status apply(const Strip& step, Section& section);
  static absl::Status apply(const ByteLevel& step, Section& section);

  std::vector<Step> steps_;
};

}  // namespace bascule::ref
