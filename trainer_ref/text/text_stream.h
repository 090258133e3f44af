// Decodes token by token, for streamed answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <bascule/trainer_ref/text/tokenizer_file.h>

namespace bascule::ref {

// One text. One thread at a time; moved, not copied. It keeps the tokenizer's parts alive.
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const TokenizerParts> parts, bool with_special_tokens = false);

  // Lets the text go on after `prompt`, whose own text is not returned. So it begins as it would in the whole text: for
  // example with the space that only the first token of a text lacks. A character that the prompt cuts is returned
  // whole. Call it before push(). `prompt` may be tail_of() the prompt.
  void follow(std::span<const std::int64_t> prompt);
  // The last tokens of a prompt, which decide how the text after it begins.
  std::span<const std::int64_t> tail_of(std::span<const std::int64_t> prompt) const;

  // Returns the text that becomes final with this token; it may be empty. Text that a later token can still change,
  // such as an incomplete character, is held back. Unknown ids add no text, and special tokens add none unless
  // requested.
  std::string push(std::int64_t token_id);

  // Returns the rest, once no token follows. A character that stays cut becomes U+FFFD.
  std::string finish();

 private:
  std::string decode(std::int64_t token_id);
  std::string taken();
  std::string after_prompt(std::string text);

  std::shared_ptr<const TokenizerParts> parts_;
  bool with_special_tokens_;
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  JoinStage* joined_;      // the last of them
  std::string of_prompt_;  // text of the prompt that the stages still hold
};

}  // namespace bascule::ref
