#include <bascule/trainer_ref/engine/http/choice_text.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::string_view kSentencePieceSpace = "\xE2\x96\x81";  // U+2581, in tokens of SentencePiece's

// In UTF-8.
std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string token_text(std::int64_t token, const ModelCard& card, bool as_id) {
  if (as_id || !card.tokenizer) return cat("token_id:", token);
  std::string text = card.tokenizer->decode(std::span(&token, 1), /*with_special_tokens=*/true);
  // Decoders drop the space at the very beginning of a text, but most tokens are not there.
  const std::optional<std::string_view> written = card.tokenizer->token_of(token);
  if (written && written->starts_with(kSentencePieceSpace) && !text.starts_with(' ')) return cat(" ", text);
  return text;
}

ChoiceText::ChoiceText(const AnswerOptions& options, const ModelCard& card)
    : stop_(options.stop, options.include_stop), min_tokens_(options.min_tokens) {
  if (card.tokenizer) text_.emplace(card.tokenizer->stream(options.with_special_tokens));
}

void ChoiceText::follow(std::span<const std::int64_t> prompt) {
  if (text_) text_->follow(prompt);
}

std::string ChoiceText::push_prompt(std::int64_t token) {
  std::string text = text_ ? text_->push(token) : "";
  characters_ += characters_of(text);
  return text;
}

std::string ChoiceText::until_stop(std::string_view text) {
  return min_tokens_ > 0 && tokens_ <= min_tokens_ ? stop_.pass(text) : stop_.push(text);
}

std::string ChoiceText::push(std::int64_t token) {
  ++tokens_;
  return until_stop(push_prompt(token));
}

std::string ChoiceText::finish() {
  if (stop_.found()) return {};
  const std::string rest = text_ ? text_->finish() : "";
  characters_ += characters_of(rest);
  std::string text = until_stop(rest);
  return text + stop_.finish();
}

}  // namespace bascule::ref
