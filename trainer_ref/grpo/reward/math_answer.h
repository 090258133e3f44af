// The final answer of a solution, and whether it is the expected one: numbers exactly, as rationals, the rest as text.
//
// Threads: any; no state. Everything takes time in proportion to the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <bascule/trainer_ref/grpo/reward/math_number.h>

namespace bascule::ref {

struct MathAnswer {
  bool is_number = false;
  std::optional<Rational> value = {};  // nullopt: no number, or too large for value_of()
  std::string text = {};               // as math_form() writes it; for a number, its digits without commas and unit
};

// Reads the whole of `text` as an answer. It is a number if only a unit follows the number ("5 cm", "50%") and only
// "x =" precedes it. A percent sign is a unit: 50% is 50, not 0.5. A single letter immediately after the digits is a
// variable, not a unit: 5x is text. After a blank, only letters such as m and s are units.
MathAnswer read_math_answer(std::string_view text);

// The answer in a data file's column: the content of the last \boxed{…}, else the text after the last ####, else all.
MathAnswer expected_math_answer(std::string_view column);

// Whether the final answer of `completion` is `expected`. The final answer is
//   1. the whole content of the last \boxed{…} (or \fbox{…}) that is closed and not empty: a box with two numbers is
//      not a number;
//   2. else the rest of the line after the last ####, as a whole (a Markdown heading, "#### Step 3", does not count);
//   3. else the first number after the last "answer is" or "answer:" in its line, or after the = of an equation there;
//   4. else the last number.
// If `expected` is not a number, 3 is the rest of the sentence, and 4 the whole completion.
bool has_math_answer(std::string_view completion, const MathAnswer& expected);

}  // namespace bascule::ref
