// Finds numbers in a text, as people and models write them, and reads their exact values.
//
//   -3.50   1,234   1.5e3   2^{10}   3/4   \frac{3}{4}   2 1/2   1.2 * 10^{3}   5 million
//
// Texts must come from plain_math() (math_text.h): no LaTeX except \frac, no typographic signs. Each function takes
// time in proportion to the text. Threads: any; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <boost/multiprecision/cpp_int.hpp>

namespace bascule::ref {

using Rational = boost::multiprecision::cpp_rational;

// A number as written: sign · (whole^exponent + numerator / denominator) · 10^power. Its parts are views into the text.
struct NumberText {
  bool negative = false;
  std::string_view whole = {};                        // decimal, with commas and exponent; empty: a fraction alone
  std::string_view numerator = {}, denominator = {};  // decimal; both or none
  std::int64_t power = 0;                             // from "* 10^" or "million"
  std::int64_t exponent = 1;                          // of 2^{10}, which has no fraction
  std::size_t begin = 0, end = 0;                     // of the whole number in the text
};

enum class NumberForms {
  kDecimals,  // for number_match: "3/4" is two numbers, and a minus belongs to the number after it: 10-5 has -5
  kAll,       // a minus after a digit, letter or bracket is an operator; exponents and indices are not numbers
};

// Reads the number that begins at `begin`, in all forms. It may begin with a sign, and blanks after the sign.
std::optional<NumberText> read_number(std::string_view text, std::size_t begin);

// Return the first or last number of a text, if there is one.
std::optional<NumberText> first_number(std::string_view text, NumberForms forms);
std::optional<NumberText> last_number(std::string_view text, NumberForms forms);

// Returns nullopt if a denominator is zero, or a part has more than a thousand digits or a power of ten beyond a
// thousand, or if a zero has an exponent below 1.
std::optional<Rational> value_of(const NumberText& number);

}  // namespace bascule::ref
