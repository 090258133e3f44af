// A text on its way to the model: cut into words, and rewritten.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/text/pattern.h>

namespace bascule::ref {

// A stretch of the input between added tokens.
struct Section {
  std::string text;
  bool at_start = false;  // its first character was the input's first
};

struct Word {
  Span span;  // of the text
  bool at_start = false;
};

// Words in order, none of them empty; what lies between them is left out.
struct Words {
  explicit Words(std::string text, bool at_start);

  std::string_view of(const Word& word) const {
    return std::string_view(text).substr(word.span.begin, word.span.end - word.span.begin);
  }

  std::string text;
  std::vector<Word> list;
};

// What becomes of a pattern's matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts every word by `pattern`. With `inverted`, what lies between matches counts as match, and the other way round.
absl::Status split(Words& words, const Pattern& pattern, SplitBehavior behavior, bool inverted);

}  // namespace bascule::ref
