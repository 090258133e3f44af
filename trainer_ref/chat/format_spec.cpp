#include <bascule/trainer_ref/chat/format_spec.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 300;  // of a number

// `head` is the sign and prefix of a number, which stay before the fill if the alignment is '='.
absl::StatusOr<std::string> padded(Machine& machine, std::string_view head, std::string_view body,
                                   const FormatSpec& spec, char align) {
  const std::int64_t missing = spec.width - count_code_points(head) - count_code_points(body);
  const auto total = static_cast<std::uint64_t>(std::max<std::int64_t>(missing, 0));
  BASCULE_TRY(machine.charge_bytes(total * spec.fill.size() + head.size() + body.size()));
  const std::uint64_t left = align == '<' ? 0 : align == '^' ? total / 2 : total;
  const auto fill = [&](std::uint64_t times) {
    std::string text;
    for (std::uint64_t i = 0; i < times; ++i) text += spec.fill;
    return text;
  };
  if (align == '=') return cat(head, fill(total), body);
  return cat(fill(left), head, body, fill(total - left));
}

std::string grouped(std::string_view digits, char separator, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) text += separator;
    text += digits[i];
  }
  return text;
}

std::string digits_in_base(std::uint64_t number, char type) {
  std::array<char, 64> buffer{};
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, base);
  std::string digits(buffer.data(), end.ptr);
  if (type == 'X')
    for (char& c : digits) c = c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c;
  return digits;
}

absl::StatusOr<std::string> finish(Machine& machine, bool negative, std::string_view prefix, std::string body,
                                   const FormatSpec& spec) {
  if (spec.grouping != 0) {
    if (spec.fill == "0" && spec.align == '=')
      return unimplemented("format: zeros before a number with ", std::string_view(&spec.grouping, 1),
                           " are not supported");
    const std::size_t end = std::min(body.find_first_not_of("0123456789abcdefABCDEF"), body.size());
    const bool is_decimal = std::string_view("xXob").find(spec.type) == std::string_view::npos || spec.type == 0;
    body = grouped(std::string_view(body).substr(0, end), spec.grouping, is_decimal ? 3 : 4) + body.substr(end);
  }
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return padded(machine, sign + std::string(prefix), body, spec, spec.align == 0 ? '>' : spec.align);
}

absl::StatusOr<std::string> format_integer(Machine& machine, std::int64_t number, const FormatSpec& spec) {
  if (spec.precision >= 0) return invalid_argument("format: an integer takes no precision");
  if (spec.grouping == ',' && spec.type != 0 && spec.type != 'd')
    return invalid_argument("format: ',' needs decimal digits");
  const std::uint64_t size = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  const bool has_prefix = spec.alternate && spec.type != 0 && spec.type != 'd';
  const std::string prefix = has_prefix ? std::string{'0', spec.type} : "";
  return finish(machine, number < 0, prefix, digits_in_base(size, spec.type), spec);
}

absl::StatusOr<std::string> format_float(Machine& machine, double number, const FormatSpec& spec) {
  if (spec.alternate) return unimplemented("format: '#' of a float is not supported");
  if (spec.precision > kMaxPrecision)
    return unimplemented("format: a precision above ", kMaxPrecision, " is not supported");
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double size = negative ? -number : number;
  if (spec.type == 0) {
    if (spec.precision >= 0) return unimplemented("format: a float's precision needs a type, such as .2f");
    return finish(machine, negative, "", float_text(size), spec);
  }
  const bool percent = spec.type == '%';
  const std::array<char, 5> form = {'%', '.', '*', percent ? 'f' : spec.type, '\0'};
  std::array<char, 1024> buffer{};
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const int length = std::snprintf(buffer.data(), buffer.size(), form.data(), precision, percent ? size * 100 : size);
  return finish(machine, negative, "",
                std::string(buffer.data(), static_cast<std::size_t>(length)) + (percent ? "%" : ""), spec);
}

}  // namespace

absl::StatusOr<std::string> format_text(Machine& machine, std::string_view text, const FormatSpec& spec) {
  if (spec.type != 0 && spec.type != 's')
    return invalid_argument("format: a text has no type '", std::string_view(&spec.type, 1), "'");
  if (spec.align == '=' || spec.sign != '-' || spec.alternate || spec.grouping != 0)
    return invalid_argument("format: a text takes only a fill, an alignment, a width and a precision");
  BASCULE_TRY(machine.charge_bytes(text.size()));
  if (spec.precision >= 0 && count_code_points(text) > spec.precision)
    text = text.substr(0, code_point_offsets(text)[static_cast<std::size_t>(spec.precision)]);
  return padded(machine, "", text, spec, spec.align == 0 ? '<' : spec.align);
}

absl::StatusOr<std::string> format_number(Machine& machine, const Value& number, const FormatSpec& spec) {
  const bool of_floats = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  const bool of_integers = spec.type != 0 && std::string_view("bdoxX").find(spec.type) != std::string_view::npos;
  if (spec.type == 'c' || spec.type == 'n')
    return unimplemented("format: the type ", std::string_view(&spec.type, 1), " is not supported");
  if (spec.type != 0 && !of_floats && !of_integers)
    return invalid_argument("format: a number has no type '", std::string_view(&spec.type, 1), "'");
  if (const auto integer = number.index(); integer && !of_floats) return format_integer(machine, *integer, spec);
  if (of_integers) return invalid_argument("format: the type ", std::string_view(&spec.type, 1), " needs an integer");
  return format_float(machine, number.number(), spec);
}

absl::StatusOr<std::int64_t> read_size(std::string_view text, std::size_t& at, std::int64_t otherwise) {
  std::int64_t size = otherwise;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    size = std::max<std::int64_t>(size, 0) * 10 + (text[at] - '0');
    if (size > (std::int64_t{1} << 31)) return invalid_argument("format: too many digits in a width or precision");
  }
  return size;
}

}  // namespace bascule::ref::jinja
