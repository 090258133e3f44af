// Mathematics as plain text: LaTeX, Markdown and the signs of typography reduced to what math_number.h reads.
#pragma once

#include <string>
#include <string_view>

namespace bascule::ref {

// `text` without what only shows it:
//   $ \( \) \[ \] ** ` € £ ¥ \left \right           gone, or a blank where two words would become one
//   \text{…} \mathrm{…} \boxed{…} and their like    what stands in the braces
//   \dfrac \tfrac  ½ ¼ ¾                            \frac{…}{…}
//   − – × · ≈  \times \cdot \div \approx            - - * * =  * * / =
//   {,} and \, between digits                       a comma, nothing
//   ° ^\circ                                        the word degrees
// Other commands stay. Takes time in proportion to the text, however braces nest.
std::string plain_math(std::string_view text);

}  // namespace bascule::ref
