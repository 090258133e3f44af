// Decodes token by token, for streamed answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <bascule/trainer_ref/text/tokenizer_file.h>

namespace bascule::ref {

// One text. One thread at a time; moved, not copied. It keeps the tokenizer's parts alive.
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const TokenizerParts> parts, bool with_special_tokens = false);

  // Returns the text that becomes final with this token; it may be empty. Text that a later token can still change,
  // such as an incomplete character, is held back. Unknown ids add no text, and special tokens add none unless
  // requested.
  std::string push(std::int64_t token_id);

  // Returns the rest, once no token follows. A character that stays cut becomes U+FFFD.
  std::string finish();

 private:
  std::string taken();

  std::shared_ptr<const TokenizerParts> parts_;
  bool with_special_tokens_;
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  JoinStage* joined_;  // the last of them
};

}  // namespace bascule::ref
