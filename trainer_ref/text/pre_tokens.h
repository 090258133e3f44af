// Pre-tokens, as Hugging Face calls them: the pieces of a text that the model turns into tokens one by one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/text/pattern.h>

namespace bascule::ref {

// A segment of the input between added tokens.
struct Section {
  std::string text;
  bool at_start = false;  // its first character was the input's first
};

struct PreToken {
  Span span;  // of the text
  bool at_start = false;
};

// A text and its pre-tokens, in order. None is empty; text between them is dropped.
struct PreTokens {
  explicit PreTokens(std::string text, bool at_start);

  std::string_view of(const PreToken& pre_token) const {
    return std::string_view(text).substr(pre_token.span.begin, pre_token.span.end - pre_token.span.begin);
  }

  std::string text;
  std::vector<PreToken> list;
};

// What happens to a pattern's matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Splits every pre-token by `pattern`. With `inverted`, the text between matches counts as the matches.
absl::Status split(PreTokens& pre_tokens, const Pattern& pattern, SplitBehavior behavior, bool inverted);

}  // namespace bascule::ref
