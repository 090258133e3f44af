#include <bascule/trainer_ref/grpo/reward/math_number.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <bascule/trainer_ref/grpo/reward/math_chars.h>

namespace bascule::ref {
namespace {

using Integer = boost::multiprecision::cpp_int;

constexpr std::size_t kMostDigits = 1000;
constexpr std::int64_t kMostPower = 1000;
constexpr std::string_view kFraction = "\\frac";

// Returns '\0', which is in no character class, after the end of the text.
char at(std::string_view text, std::size_t i) { return i < text.size() ? text[i] : '\0'; }
bool is_sign(char c) { return c == '-' || c == '+'; }

std::size_t skip_blanks(std::string_view text, std::size_t i) {
  while (is_blank(at(text, i))) ++i;
  return i;
}
std::size_t skip_digits(std::string_view text, std::size_t i) {
  while (is_digit(at(text, i))) ++i;
  return i;
}

// The skip_ and read_ functions return the end of what they read from `begin`, or `begin` if it is not there.

// Digits, possibly in groups of three: "1,234" is one number, "1,2345" is not.
std::size_t skip_groups(std::string_view text, std::size_t begin) {
  std::size_t end = skip_digits(text, begin);
  if (end == begin || end - begin > 3) return end;
  const auto group = [&](std::size_t i) {
    return at(text, i) == ',' && is_digit(at(text, i + 1)) && is_digit(at(text, i + 2)) && is_digit(at(text, i + 3)) &&
           !is_digit(at(text, i + 4));
  };
  while (group(end)) end += 4;
  return end;
}

// "1,234.5e-6"
std::size_t skip_decimal(std::string_view text, std::size_t begin) {
  std::size_t end = skip_groups(text, begin);
  if (at(text, end) == '.' && is_digit(at(text, end + 1))) end = skip_digits(text, end + 1);
  if (end == begin || (at(text, end) != 'e' && at(text, end) != 'E')) return end;
  const std::size_t digits = end + (is_sign(at(text, end + 1)) ? 2 : 1), exponent = skip_digits(text, digits);
  return exponent > digits && !is_letter(at(text, exponent)) ? exponent : end;
}

// A number in \frac: "{-1.5}", or one digit as in \frac12.
std::size_t read_part(std::string_view text, std::size_t begin, std::string_view& part, bool& negative) {
  if (is_digit(at(text, begin))) {
    part = text.substr(begin, 1);
    return begin + 1;
  }
  if (at(text, begin) != '{') return begin;
  std::size_t from = skip_blanks(text, begin + 1);
  const bool minus = at(text, from) == '-';
  if (is_sign(at(text, from))) ++from;
  const std::size_t end = skip_decimal(text, from), close = skip_blanks(text, end);
  if (end == from || at(text, close) != '}') return begin;
  part = text.substr(from, end - from);
  negative = negative != minus;
  return close + 1;
}

// \frac{a}{b}, written to `number`.
std::size_t read_fraction(std::string_view text, std::size_t begin, NumberText& number) {
  if (text.substr(begin, kFraction.size()) != kFraction) return begin;
  NumberText read = number;
  const std::size_t first = skip_blanks(text, begin + kFraction.size());
  const std::size_t between = read_part(text, first, read.numerator, read.negative);
  if (between == first) return begin;
  const std::size_t second = skip_blanks(text, between);
  const std::size_t end = read_part(text, second, read.denominator, read.negative);
  if (end == second) return begin;
  number = read;
  return end;
}

// The fraction of "2 1/2" or 2\frac{1}{2}. "2 3/2" is not one number: the fraction after a blank must be below 1.
std::size_t read_mixed(std::string_view text, std::size_t begin, NumberText& number) {
  const std::size_t from = skip_blanks(text, begin);
  NumberText read = number;
  if (const std::size_t end = read_fraction(text, from, read); end != from) {
    if (read.negative != number.negative) return begin;
    number = read;
    return end;
  }
  if (from != begin + 1) return begin;
  const std::size_t slash = skip_digits(text, from), end = skip_digits(text, slash + 1);
  if (slash == from || at(text, slash) != '/' || end == slash + 1) return begin;
  if (const char next = at(text, end); next == '/' || (next == '.' && is_digit(at(text, end + 1)))) return begin;
  const std::string_view over = text.substr(from, slash - from), under = text.substr(slash + 1, end - slash - 1);
  if (std::pair(over.size(), over) >= std::pair(under.size(), under)) return begin;
  number.numerator = over;
  number.denominator = under;
  return end;
}

// "/4", which makes the whole a numerator; not with another slash, as in dates.
std::size_t read_over(std::string_view text, std::size_t begin, NumberText& number) {
  if (number.begin > 0 && text[number.begin - 1] == '/') return begin;
  const std::size_t slash = at(text, begin) == ' ' ? begin + 1 : begin;
  if (at(text, slash) != '/') return begin;
  const std::size_t from = at(text, slash + 1) == ' ' ? slash + 2 : slash + 1;
  const std::size_t end = skip_decimal(text, from);
  if (end == from || at(text, end) == '/') return begin;
  number.numerator = std::exchange(number.whole, {});
  number.denominator = text.substr(from, end - from);
  return end;
}

// "^{-3}" or "^3"
std::size_t read_power(std::string_view text, std::size_t begin, std::int64_t& power) {
  if (at(text, begin) != '^') return begin;
  const bool braces = at(text, begin + 1) == '{';
  const std::size_t sign = begin + (braces ? 2 : 1), from = sign + (is_sign(at(text, sign)) ? 1 : 0);
  const std::size_t end = skip_digits(text, from);
  if (end == from || (braces && at(text, end) != '}')) return begin;
  power = kMostPower + 1;  // for powers with more digits than are read
  if (end - from <= 9) power = std::stol(std::string(text.substr(from, end - from)));
  if (at(text, sign) == '-') power = -power;
  return end + (braces ? 1 : 0);
}

// " * 10^3"
std::size_t read_times_power(std::string_view text, std::size_t begin, NumberText& number) {
  const std::size_t times = skip_blanks(text, begin);
  if (const char c = at(text, times); c != '*' && c != 'x' && c != 'X') return begin;
  const std::size_t ten = skip_blanks(text, times + 1);
  if (text.substr(ten, 3) != "10^") return begin;
  const std::size_t end = read_power(text, ten + 2, number.power);
  return end == ten + 2 ? begin : end;
}

// " million"
std::size_t read_scale(std::string_view text, std::size_t begin, NumberText& number) {
  constexpr std::array<std::pair<std::string_view, int>, 4> kScales = {
      {{"thousand", 3}, {"million", 6}, {"billion", 9}, {"trillion", 12}}};
  const std::size_t from = skip_blanks(text, begin);
  for (const auto& [word, power] : kScales) {
    const std::string_view found = text.substr(from, word.size());
    const bool same = std::equal(found.begin(), found.end(), word.begin(), word.end(),
                                 [](char a, char b) { return is_letter(a) && (a | 0x20) == b; });
    if (!same || is_letter(at(text, from + word.size()))) continue;
    number.power += power;
    return from + word.size();
  }
  return begin;
}

// The number after its sign, in all forms; `number` has the sign.
std::optional<NumberText> read_unsigned(std::string_view text, std::size_t begin, NumberText number) {
  std::size_t end = read_fraction(text, begin, number);
  if (end == begin) {
    end = skip_decimal(text, begin);
    if (end == begin) return std::nullopt;
    number.whole = text.substr(begin, end - begin);
    std::size_t more = number.whole == "10" ? read_power(text, end, number.power) : end;
    if (more != end) {
      number.whole = number.whole.substr(0, 1);
    } else if (number.whole.find_first_of("eE") == std::string_view::npos &&
               (more = read_power(text, end, number.exponent)) != end) {
      // Of towers and quotients, the first power alone would be another number.
      if (at(text, more) == '^' || at(text, more) == '/') number.exponent = kMostPower + 1;
    } else {
      if (number.whole.find_first_of(".eE") == std::string_view::npos) more = read_mixed(text, end, number);
      if (more == end) more = read_over(text, end, number);
    }
    end = more;
  }
  if (number.power == 0) end = read_times_power(text, end, number);
  number.end = read_scale(text, end, number);
  return number;
}

// Whether an exponent or an index begins at `begin`: the 2 of cm^2, or of x_{2}.
bool is_raised(std::string_view text, std::size_t begin) {
  if (begin > 0 && text[begin - 1] == '{') --begin;
  return begin > 0 && (text[begin - 1] == '^' || text[begin - 1] == '_');
}

// Returns the position of the sign of the number at `begin`, or `begin` if it has none.
std::size_t sign_of(std::string_view text, std::size_t begin, NumberForms forms) {
  if (begin == 0 || !is_sign(text[begin - 1])) return begin;
  if (forms == NumberForms::kDecimals) return text[begin - 1] == '-' ? begin - 1 : begin;
  const char before = begin > 1 ? text[begin - 2] : ' ';
  const bool is_operator = is_digit(before) || is_letter(before) || before == ')' || before == ']' || before == '}';
  return is_operator ? begin : begin - 1;
}

// Whether a number may begin at `i`: a digit, a point before one (but not "1..5" and not "end.5"), or \frac.
bool may_begin(std::string_view text, std::size_t i, NumberForms forms) {
  if (is_digit(text[i])) return true;
  if (text[i] == '\\') return forms == NumberForms::kAll && text.substr(i, kFraction.size()) == kFraction;
  if (text[i] != '.' || !is_digit(at(text, i + 1))) return false;
  const char before = i > 0 ? text[i - 1] : ' ';
  return !is_digit(before) && !is_letter(before) && before != '.';
}

// Returns the first number that begins at `from` or later.
std::optional<NumberText> next_number(std::string_view text, std::size_t from, NumberForms forms) {
  for (std::size_t i = from; i < text.size(); ++i) {
    if (!may_begin(text, i, forms)) continue;
    const std::size_t begin = sign_of(text, i, forms);
    NumberText number{.negative = begin < i && text[begin] == '-', .begin = begin};
    if (forms == NumberForms::kDecimals) {
      number.end = skip_decimal(text, i);
      number.whole = text.substr(i, number.end - i);
      return number;
    }
    if (is_raised(text, begin)) {
      i = std::max(i, skip_decimal(text, i) - 1);
    } else if (const std::optional<NumberText> read = read_unsigned(text, i, number)) {
      return read;
    }
  }
  return std::nullopt;
}

Rational ten_to(std::int64_t power) {
  const Integer ten = boost::multiprecision::pow(Integer(10), static_cast<unsigned>(std::abs(power)));
  return power < 0 ? Rational(Integer(1), ten) : Rational(ten);
}

std::optional<Rational> decimal_value(std::string_view text) {
  const std::size_t e = text.find_first_of("eE");
  std::int64_t power = 0;
  if (e != std::string_view::npos) {
    std::string_view exponent = text.substr(e + 1);
    const bool negative = exponent.front() == '-';
    if (is_sign(exponent.front())) exponent.remove_prefix(1);
    exponent.remove_prefix(std::min(exponent.find_first_not_of('0'), exponent.size()));
    if (exponent.size() > 9) return std::nullopt;
    power = exponent.empty() ? 0 : std::stol(std::string(exponent));
    if (negative) power = -power;
  }
  const std::string_view mantissa = text.substr(0, e);
  if (mantissa.size() > 2 * kMostDigits) return std::nullopt;  // before copying
  std::string digits;
  bool behind_point = false;
  for (const char c : mantissa) {
    if (c == '.') behind_point = true;
    if (!is_digit(c)) continue;
    if (behind_point) --power;
    if (c != '0' || !digits.empty()) digits += c;  // a leading zero would make it octal
  }
  if (digits.empty()) return Rational(0);
  if (digits.size() > kMostDigits || std::abs(power) > kMostPower) return std::nullopt;
  return Rational(Integer(digits)) * ten_to(power);
}

// `digits`: at most as many as `base` has above or below its line.
std::optional<Rational> raised_to(const Rational& base, std::size_t digits, std::int64_t exponent) {
  if (exponent == 1) return base;
  const auto times = static_cast<std::size_t>(std::abs(exponent));
  if (times > static_cast<std::size_t>(kMostPower) || digits * times > kMostDigits) return std::nullopt;
  if (base.is_zero()) return exponent > 0 ? std::optional(base) : std::nullopt;
  const auto power = static_cast<unsigned>(times);
  const Integer over = boost::multiprecision::pow(Integer(numerator(base)), power);
  const Integer under = boost::multiprecision::pow(Integer(denominator(base)), power);
  return exponent < 0 ? Rational(under, over) : Rational(over, under);
}

}  // namespace

std::optional<NumberText> read_number(std::string_view text, std::size_t begin) {
  const bool has_sign = is_sign(at(text, begin));
  const std::size_t from = has_sign ? skip_blanks(text, begin + 1) : begin;
  return read_unsigned(text, from, {.negative = at(text, begin) == '-', .begin = begin});
}

std::optional<NumberText> first_number(std::string_view text, NumberForms forms) { return next_number(text, 0, forms); }

std::optional<NumberText> last_number(std::string_view text, NumberForms forms) {
  std::optional<NumberText> last;
  for (std::optional<NumberText> next = next_number(text, 0, forms); next; next = next_number(text, last->end, forms))
    last = next;
  return last;
}

std::optional<Rational> value_of(const NumberText& number) {
  if (std::abs(number.power) > kMostPower) return std::nullopt;
  Rational value = 0;
  if (!number.whole.empty()) {
    const std::optional<Rational> whole = decimal_value(number.whole);
    if (!whole) return std::nullopt;
    const std::optional<Rational> raised = raised_to(*whole, number.whole.size(), number.exponent);
    if (!raised) return std::nullopt;
    value = *raised;
  }
  if (!number.denominator.empty()) {
    const std::optional<Rational> over = decimal_value(number.numerator), under = decimal_value(number.denominator);
    if (!over || !under || under->is_zero()) return std::nullopt;
    value += *over / *under;
  }
  value *= ten_to(number.power);
  return number.negative ? Rational(-value) : value;
}

}  // namespace bascule::ref
