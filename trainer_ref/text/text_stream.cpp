#include <bascule/trainer_ref/text/text_stream.h>

#include <algorithm>
#include <utility>

#include <bascule/trainer_ref/text/decoder_stage.h>

namespace bascule::ref {

TextStream::TextStream(std::shared_ptr<const TokenizerParts> parts, bool with_special_tokens)
    : parts_(std::move(parts)),
      with_special_tokens_(with_special_tokens),
      stages_(parts_->decoder.stages()),
      joined_(static_cast<JoinStage*>(stages_.back().get())) {}

std::string TextStream::taken() { return std::exchange(joined_->text(), {}); }

std::string TextStream::decode(std::int64_t token_id) {
  if (const AddedToken* added = parts_->added.find(token_id)) {
    // Passes on the text that was found: a decoder undoes what a normalizer did.
    if (!added->is_special || with_special_tokens_) stages_.front()->take(added->sought, true);
  } else if (const std::string* token = parts_->vocabulary.text_of(token_id)) {
    stages_.front()->take(*token, true);
  }
  return taken();
}

// Leaves out what the prompt has as well. Afterwards the text is the completion's own.
std::string TextStream::after_prompt(std::string text) {
  if (of_prompt_.empty()) return text;
  const auto [own, held] = std::mismatch(text.begin(), text.end(), of_prompt_.begin(), of_prompt_.end());
  auto same = static_cast<std::size_t>(own - text.begin());
  const bool is_all = same == text.size() || same == of_prompt_.size();
  while (!is_all && same > 0 && (static_cast<unsigned char>(text[same]) & 0xC0U) == 0x80U) --same;  // whole characters
  of_prompt_ = same == text.size() ? of_prompt_.substr(same) : "";
  return text.substr(same);
}

void TextStream::follow(std::span<const std::int64_t> prompt) {
  TextStream alone(parts_, with_special_tokens_);
  for (const std::int64_t token : prompt) {
    decode(token);
    alone.decode(token);
  }
  of_prompt_ = alone.finish();
}

std::span<const std::int64_t> TextStream::tail_of(std::span<const std::int64_t> prompt) const {
  constexpr int kWritten = 8;
  std::size_t begin = prompt.size();
  for (int written = 0; begin > 0; --begin) {
    const AddedToken* added = parts_->added.find(prompt[begin - 1]);
    const std::string* token = parts_->vocabulary.text_of(prompt[begin - 1]);
    const bool is_byte = added == nullptr && token != nullptr && byte_of_token(*token);
    if (written >= kWritten && !is_byte) break;  // bytes of a row of characters are decoded together
    const bool is_written = added != nullptr ? !added->is_special || with_special_tokens_ : token != nullptr;
    written += is_written ? 1 : 0;
  }
  return prompt.subspan(begin);
}

std::string TextStream::push(std::int64_t token_id) { return after_prompt(decode(token_id)); }

std::string TextStream::finish() {
  stages_.front()->finish();
  return after_prompt(taken());
}

}  // namespace bascule::ref
