// Filters that make numbers.
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/strings.h>
#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

namespace bascule::ref::jinja {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

// Takes underscores between digits away; none where one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return plain;
}

// float() of a text; none where Python raises ValueError.
std::optional<double> read_float(std::string_view text) {
  std::optional<std::string> plain = without_underscores(stripped(text, Side::kBoth));
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view rest = *plain;
  const bool is_negative = rest.front() == '-';
  if (is_negative || rest.front() == '+') rest.remove_prefix(1);
  const std::string word = lower(rest);
  if (word == "inf" || word == "infinity") return is_negative ? -INFINITY : INFINITY;
  if (word == "nan") return NAN;
  if (rest.empty() || !(rest.front() == '.' || (rest.front() >= '0' && rest.front() <= '9'))) return std::nullopt;
  double value = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (read.ptr != rest.data() + rest.size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) {  // Python: 0 or inf
    value = rest.find("e-") != std::string_view::npos || rest.find("E-") != std::string_view::npos ? 0 : INFINITY;
  } else if (read.ec != std::errc()) {
    return std::nullopt;
  }
  return is_negative ? -value : value;
}

absl::StatusOr<Value> truncated(double number, const Value& otherwise) {
  if (!std::isfinite(number)) return otherwise;
  if (number >= kTwoTo63 || number < -kTwoTo63) {
    return unimplemented("int: the integer needs more than 64 bits, which is not computed here");
  }
  return Value::of(static_cast<std::int64_t>(number));
}

absl::StatusOr<Value> to_integer(Machine& machine, const Value& value, const Bound& arguments) {
  const Value otherwise = arguments.get(0, Value::of(std::int64_t{0}));
  if (const auto index = value.index()) return Value::of(*index);
  if (value.is(Kind::kFloat)) return truncated(value.number(), otherwise);
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is(Kind::kText)) return otherwise;
  BASCULE_TRY(machine.charge_bytes(value.text().size()));
  BASCULE_ASSIGN(const auto base, arguments.integer(1));
  if (base.value_or(10) != 10) return unimplemented("int: another base than 10 is not read here");
  if (has_foreign_digit(value.text())) return unimplemented("int: digits beyond ASCII are not read here");
  const auto plain = without_underscores(stripped(value.text(), Side::kBoth));
  if (plain && !plain->empty()) {
    const char* begin = plain->data() + (plain->front() == '+' && plain->size() > 1 && (*plain)[1] != '-' ? 1 : 0);
    const char* end = plain->data() + plain->size();
    std::int64_t number = 0;
    const auto read = std::from_chars(begin, end, number);
    if (read.ptr == end && read.ec == std::errc()) return Value::of(number);
    if (read.ptr == end && read.ec == std::errc::result_out_of_range) {
      return unimplemented("int: the integer needs more than 64 bits, which is not computed here");
    }
  }
  const auto number = read_float(value.text());
  return number ? truncated(*number, otherwise) : otherwise;
}

absl::StatusOr<Value> to_float(Machine& machine, const Value& value, const Bound& arguments) {
  const Value otherwise = arguments.get(0, Value::of(0.0));
  if (value.is_number()) return Value::of(value.number());
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is(Kind::kText)) return otherwise;
  BASCULE_TRY(machine.charge_bytes(value.text().size()));
  if (has_foreign_digit(value.text())) return unimplemented("float: digits beyond ASCII are not read here");
  const auto number = read_float(value.text());
  return number ? Value::of(*number) : otherwise;
}

absl::StatusOr<Value> absolute(Machine&, const Value& value, const Bound&) {
  if (value.is(Kind::kFloat)) return Value::of(std::fabs(value.number()));
  if (const auto index = value.index()) return *index < 0 ? negative(value) : Value::of(*index);
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  return invalid_argument("abs: expected a number, found ", value.type());
}

absl::StatusOr<Value> round(Machine&, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const auto precision, arguments.integer(0));
  const Value method = arguments.get(1, Value::of("common"));
  const std::string name = method.is(Kind::kText) ? method.text() : "";
  if (name != "common" && name != "ceil" && name != "floor") {
    return invalid_argument("round: expected the method common, ceil or floor");
  }
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is_number()) return invalid_argument("round: expected a number, found ", value.type());
  const std::int64_t digits = precision.value_or(0);
  if (digits < 0 || digits > 15 || (arguments.find(0) != nullptr && !precision)) {
    return unimplemented("round: expected a precision from 0 to 15");
  }
  if (name == "common") {
    if (const auto index = value.index()) return Value::of(*index);
    if (!std::isfinite(value.number())) return value;
    // printf rounds the exact value, halves to even, as Python does.
    std::array<char, 400> text{};
    std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(digits), value.number());
    double rounded = 0;
    std::from_chars(text.data(), text.data() + std::char_traits<char>::length(text.data()), rounded);
    return Value::of(rounded);
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * scale;
  if (!std::isfinite(scaled) || std::fabs(scaled) > kTwoTo63 / 1024) {
    return unimplemented("round: such a large number is not computed here");
  }
  return Value::of((name == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

}  // namespace

const std::vector<Filter>& number_filters() {
  static const auto* table = new std::vector<Filter>{
      {"int", "default? base?", to_integer},
      {"float", "default?", to_float},
      {"abs", "", absolute},
      {"round", "precision? method?", round},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
