// Mathematics as plain text: reduces LaTeX, Markdown and typographic signs to the form that math_number.h reads.
#pragma once

#include <string>
#include <string_view>

namespace bascule::ref {

// Removes or replaces the markup of `text`:
//   $ \( \) \[ \] ** ` € £ ¥ \left \right           nothing, or a blank if two words would become one
//   \text{…} \mathrm{…} \boxed{…} and the like      the content of the braces
//   \dfrac \tfrac  ½ ¼ ¾                            \frac{…}{…}
//   − – × · ÷ ≈  \times \cdot \div \approx          - - * * / =  * * / =
//   {,} and \! and \, before three digits           a comma, nothing, nothing
//   √ π ∞ ± ≤ ≥ ≠ ∪ ∩ ∈ ∅                           \surd \pi \infty … (\surd takes a whole number: √12)
//   \\                                              a semicolon between blanks
//   ° ^\circ                                        the word degrees
// Other commands stay. Takes time in proportion to the text, however deeply braces nest.
std::string plain_math(std::string_view text);

// Writes raised digits as exponents: x² becomes x^{2}.
std::string with_powers(std::string_view text);

}  // namespace bascule::ref
