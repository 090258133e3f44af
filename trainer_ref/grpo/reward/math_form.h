// One form for the ways to write an answer that is not a single number: \sqrt2 and √2, x^{2} and x^2, (1/2, 3) and
// (0.5, 3). Only notation is unified. Nothing is calculated, except the numbers that are elements of a list.
//
// Threads: any; no state.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace bascule::ref {

// The exact value of an element that is a number with or without a unit, as text; nullopt if it is not one.
using ElementValue = std::function<std::optional<std::string>(std::string_view element)>;

// Returns the form of `text`, which must come from plain_math() and with_powers(). Answers are the same if their forms
// are equal:
//   \frac12  \frac{1}2  (x+1)/2      \frac{1}{2}  \frac{1}{2}  \frac{x+1}{2}
//   \sqrt2  \sqrt 2  √2  sqrt(2)     \sqrt{2}
//   x^2  x_1  \pi r  2*pi            x^{2}  x_{1}  \pi r  2\pi
//   (1.0, +x)  [0, +\infty)          (1,x)  [0,\infty)
//   {2, 1}                           {1,2}: the order of a set's elements does not count
// Blanks are dropped except between digits, and letters become lower case except in commands. A text beyond 4,096 bytes
// or 20 levels of braces keeps its notation. Takes time in proportion to the text.
std::string math_form(std::string_view text, const ElementValue& value_of_element);

}  // namespace bascule::ref
