// tokenizer.json's post_processor: TemplateProcessing, ByteLevel (which changes no ids), Sequence.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

// Immutable; any thread may call it.
class PostProcessor {
 public:
  // UNIMPLEMENTED names an unsupported post_processor. `part` may be null.
  static absl::StatusOr<PostProcessor> read(const nlohmann::json& part);

  // Returns a text's tokens, with the special tokens around them if requested.
  std::vector<std::int64_t> apply(std::vector<std::int64_t> token_ids, bool add_special_tokens) const;

  std::vector<std::int64_t> special_ids() const;  // that apply() may add
  void describe(std::string& out) const;

 private:
  struct Piece {
    bool is_text = false;
    std::vector<std::int64_t> token_ids;  // otherwise
  };
  absl::Status add(const nlohmann::json& part);
  absl::Status add_template(const nlohmann::json& part);

  std::vector<Piece> pieces_;  // none: the text alone
};

}  // namespace bascule::ref
