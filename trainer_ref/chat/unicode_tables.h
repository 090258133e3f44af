// Tables of code points beyond ASCII, generated (scripts/make-unicode-tables); each is sorted by its first member.
#pragma once

#include <vector>

namespace bascule::ref::jinja {

struct CodePointRange {
  char32_t first, last;
};
// Each code point from `first` to `last`, in steps of `step`, becomes the one at `distance` from it.
struct CaseRun {
  char32_t first, last;
  int step, distance;
};
// A code point that becomes several: their UTF-8.
struct CaseText {
  char32_t code_point;
  const char* text;
};

const std::vector<CodePointRange>& unprintable();
const std::vector<CodePointRange>& decimal_digits();
const std::vector<CaseRun>& upper_runs();
const std::vector<CaseText>& upper_texts();
const std::vector<CaseRun>& lower_runs();
const std::vector<CaseText>& lower_texts();
const std::vector<CaseRun>& title_runs();
const std::vector<CaseText>& title_texts();

}  // namespace bascule::ref::jinja
