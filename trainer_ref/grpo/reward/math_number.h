// Numbers as people and models write them, found in a text and read as exact values.
//
//   -3.50   1,234   1.5e3   3/4   \frac{3}{4}   2 1/2   1.2 * 10^{3}   5 million
//
// Texts are those of plain_math() (math_text.h): no LaTeX but \frac, no signs of typography. All of it takes time
// in proportion to the text. Threads: any; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <boost/multiprecision/cpp_int.hpp>

namespace bascule::ref {

using Rational = boost::multiprecision::cpp_rational;

// A number as written: sign · (whole + numerator / denominator) · 10^power. Its parts are views into the text.
struct NumberText {
  bool negative = false;
  std::string_view whole = {};                        // decimal, with commas and exponent; empty: a fraction alone
  std::string_view numerator = {}, denominator = {};  // decimal; both or none
  std::int64_t power = 0;                             // behind "* 10^", or "million"
  std::size_t begin = 0, end = 0;                     // of all of it in the text
};

enum class NumberForms {
  kDecimals,  // as number_match reads: "3/4" are two numbers, and a minus belongs to the number behind it: 10-5 has -5
  kAll,       // a minus behind a digit, a letter or a bracket is an operator; exponents and indices are no numbers
};

// The number that begins at `begin`, with its sign, behind which blanks may stand; all forms.
std::optional<NumberText> read_number(std::string_view text, std::size_t begin);

// The first number of a text, and the last one, where there is any.
std::optional<NumberText> first_number(std::string_view text, NumberForms forms);
std::optional<NumberText> last_number(std::string_view text, NumberForms forms);

// Its value. None: a denominator is zero, or a part has more than a thousand digits or a power of ten beyond a
// thousand.
std::optional<Rational> value_of(const NumberText& number);

}  // namespace bascule::ref
