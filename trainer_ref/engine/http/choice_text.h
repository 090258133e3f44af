// ChoiceText: the text of one completion as its tokens arrive, up to a stop string. token_text() returns the text of a
// single token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/stop_strings.h>
#include <bascule/trainer_ref/text/text_stream.h>

namespace bascule::ref {

// The bytes of one token alone; empty without a tokenizer. A character that the token cuts is U+FFFD.
std::string token_text(std::int64_t token, const ModelCard& card, bool as_id);

class ChoiceText {
 public:
  ChoiceText(const AnswerOptions& options, const ModelCard& card);

  // Returns the text that this token makes certain: whole characters at which no stop string can begin any more.
  std::string push(std::int64_t token);
  // Lets the text go on after the end of the prompt, which is not in it.
  void follow(std::span<const std::int64_t> prompt);
  // For a token of the prompt if that is in the text, which no stop string ends.
  std::string push_prompt(std::int64_t token);
  std::string finish();

  // Characters of the text before the next token, certain or not.
  std::size_t characters() const { return characters_; }
  const std::optional<std::string>& stop_string() const { return stop_.found(); }

 private:
  std::string until_stop(std::string_view text);

  std::optional<TextStream> text_;  // none: no tokenizer
  StopStrings stop_;
  const std::int64_t min_tokens_;  // no stop string ends within their text
  std::int64_t tokens_ = 0;        // generated
  std::size_t characters_ = 0;
};

}  // namespace bascule::ref
