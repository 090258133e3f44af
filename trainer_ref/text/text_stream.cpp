#include <bascule/trainer_ref/text/text_stream.h>

#include <utility>

namespace bascule::ref {

TextStream::TextStream(std::shared_ptr<const TokenizerParts> parts, bool with_special_tokens)
    : parts_(std::move(parts)),
      with_special_tokens_(with_special_tokens),
      stages_(parts_->decoder.stages()),
      joined_(static_cast<JoinStage*>(stages_.back().get())) {}

std::string TextStream::taken() { return std::exchange(joined_->text(), {}); }

std::string TextStream::push(std::int64_t token_id) {
  if (const AddedToken* added = parts_->added.find(token_id)) {
    // Passes on the text that was found: a decoder undoes what a normalizer did.
    if (!added->is_special || with_special_tokens_) stages_.front()->take(added->sought, true);
  } else if (const std::string* token = parts_->vocabulary.text_of(token_id)) {
    stages_.front()->take(*token, true);
  }
  return taken();
}

std::string TextStream::finish() {
  stages_.front()->finish();
  return taken();
}

}  // namespace bascule::ref
