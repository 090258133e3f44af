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
  std::optional<Rational> value = {};  // none: no number, or one beyond what value_of() reads
  std::string text = {};               // without blanks, in lower case; of a number without commas and unit
};

// The whole of `text` as an answer: a number is a number if nothing but a unit stands behind it ("5 cm", "50%"), and
// nothing but "x =" before it. A percent sign is a unit: 50% is 50, and not 0.5. A single letter right behind the
// digits is a variable, and no unit: 5x is text.
MathAnswer read_math_answer(std::string_view text);

// The answer of a data file's column: what the last \boxed{…} holds, else what stands behind the last ####, else all.
MathAnswer expected_math_answer(std::string_view column);

// Whether the final answer of `completion` is `expected`. The final answer is
//   1. what the last \boxed{…} (or \fbox{…}) holds whose braces close and that is not empty, as a whole: a box that
//      holds two numbers is no number;
//   2. else the line behind the last ####, likewise (a heading of Markdown, "#### Step 3", is none);
//   3. else the first number behind the last "answer is" or "answer:", in its line, or behind the = of an equation
//   there;
//   4. else the last number.
// Where `expected` is no number, 3 is the rest of the sentence, and 4 the whole completion.
bool has_math_answer(std::string_view completion, const MathAnswer& expected);

}  // namespace bascule::ref
