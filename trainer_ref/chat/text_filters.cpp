// Filters over texts and numbers, and filters that return one.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

// str() of the value, with which most of these filters begin. In Jinja2, a text marked safe would stay safe.
absl::StatusOr<std::string> plain_text(Machine& machine, const Value& value) {
  if (value.is_safe()) return unimplemented("this filter of a text marked safe is not supported");
  return to_text(machine, value);
}

absl::StatusOr<Value> to_string(Machine& machine, const Value& value, const Bound&) {
  if (value.is(Kind::kText)) return value;
  BASCULE_ASSIGN(std::string text, to_text(machine, value));
  return Value::of(std::move(text));
}

absl::StatusOr<Value> safe(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(std::string text, to_text(machine, value));
  return Value::of(std::move(text), true);
}

absl::StatusOr<Value> trim(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const auto characters, arguments.text(0));
  if (value.is_safe() && !characters) return Value::of(std::string(stripped(value.text(), Side::kBoth)), true);
  BASCULE_ASSIGN(const std::string text, plain_text(machine, value));
  if (!characters) return Value::of(stripped(text, Side::kBoth));
  BASCULE_TRY(machine.charge(characters->size() * (text.size() / 64 + 1)));
  return Value::of(stripped(text, *characters, Side::kBoth));
}

// For HTML. A text that was marked safe stays as it is, unless it is `forced`.
template <bool forced>
absl::StatusOr<Value> escape(Machine& machine, const Value& value, const Bound&) {
  if (value.is_safe() && !forced) return value;
  BASCULE_ASSIGN(const std::string text, to_text(machine, value));
  std::string escaped = html_escaped(text);
  BASCULE_TRY(machine.charge_bytes(escaped.size()));
  return Value::of(std::move(escaped), true);
}

template <Case wanted>
absl::StatusOr<Value> filter_case(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const std::string text, plain_text(machine, value));
  BASCULE_ASSIGN(std::string result, in_case(text, wanted));
  return Value::of(std::move(result));
}

absl::StatusOr<Value> filter_replace(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const std::string text, to_text(machine, value));
  BASCULE_ASSIGN(const std::string from, to_text(machine, *arguments.find(0)));
  BASCULE_ASSIGN(const std::string to, to_text(machine, *arguments.find(1)));
  BASCULE_ASSIGN(const auto count, arguments.integer(2));
  BASCULE_ASSIGN(std::string result, replaced(machine, text, from, to, count.value_or(-1)));
  return Value::of(std::move(result));
}

absl::StatusOr<Value> indent(Machine& machine, const Value& value, const Bound& arguments) {
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is(Kind::kText)) return invalid_argument("indent: expected a text, found ", value.type());
  BASCULE_ASSIGN(std::string text, plain_text(machine, value));
  std::string indention(4, ' ');
  if (const Value* width = arguments.find(0)) {
    if (width->is(Kind::kText)) {
      indention = width->text();
    } else {
      BASCULE_ASSIGN(const auto spaces, arguments.integer(0));
      if (!spaces) return invalid_argument("indent: expected a width, found None");
      const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(*spaces, 0));
      BASCULE_TRY(machine.charge_bytes(count));
      indention = std::string(count, ' ');
    }
  }
  text += '\n';
  std::string result = arguments.flag(1) ? indention : std::string();
  bool is_first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!is_first) result += '\n';
    if (!is_first && (arguments.flag(2) || !line.empty())) result += indention;
    result += line;
    is_first = false;
    BASCULE_TRY(machine.charge(indention.size() / 64 + 1));
    if (result.size() > text.size()) BASCULE_TRY(machine.charge_bytes(result.size() - text.size()));
  }
  return Value::of(std::move(result));
}

absl::StatusOr<Value> to_json_text(Machine& machine, const Value& value, const Bound& arguments) {
  JsonStyle style;
  style.ascii = arguments.flag(0);
  style.sort_keys = arguments.flag(3);
  if (const Value* width = arguments.find(1); width != nullptr && !width->is(Kind::kNone)) {
    if (width->is(Kind::kText)) {
      style.indent = width->text();
    } else {
      BASCULE_ASSIGN(const auto spaces, arguments.integer(1));
      const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(*spaces, 0));
      BASCULE_TRY(machine.charge_bytes(count));
      style.indent = std::string(count, ' ');
    }
    style.between_items = ",";
  }
  if (const Value* separators = arguments.find(2); separators != nullptr && !separators->is(Kind::kNone)) {
    BASCULE_ASSIGN(const std::vector<Value> two, to_items(machine, *separators));
    if (two.size() != 2 || !two[0].is(Kind::kText) || !two[1].is(Kind::kText)) {
      return invalid_argument("tojson: expected two texts as separators");
    }
    style.between_items = two[0].text();
    style.between_key_and_value = two[1].text();
  }
  BASCULE_ASSIGN(std::string text, to_json(machine, value, style));
  return Value::of(std::move(text));
}

// Neither Jinja2 nor transformers has this filter, but templates use it, since llama.cpp has it.
absl::StatusOr<Value> from_json(Machine& machine, const Value& value, const Bound&) {
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is(Kind::kText)) return invalid_argument("from_json: expected a text, found ", value.type());
  BASCULE_TRY(machine.charge_bytes(value.text().size()));
  BASCULE_TRY(machine.charge(value.text().size() / 8 + 1));
  BASCULE_TRY(parse_json(value.text(), "from_json").status());
  return to_value(parse_ordered(value.text()));
}

constexpr double kTwoTo63 = 9223372036854775808.0;

// float() of a text: decimal digits, perhaps with a point and an exponent, or inf or nan. Returns nullopt if it raises
// an error.
std::optional<double> float_in(std::string_view text) {
  text = stripped(text, Side::kBoth);
  if (text.find('(') != std::string_view::npos) return std::nullopt;  // nan(...) of C
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = !text.empty() && read.ptr == text.data() + text.size();
  if (is_whole && read.ec == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
  return is_whole && read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// Whether Python reads numbers in the text that float_in() does not: 1_000, and digits beyond ASCII.
bool may_be_another_number(std::string_view text) {
  const bool has_letter =
      std::any_of(text.begin(), text.end(), [](char c) { return c >= 'g' && c <= 'z' && c != 'n'; });
  return (text.find('_') != std::string_view::npos && !has_letter) || has_other_digits(text);
}

absl::StatusOr<Value> to_integer(Machine& machine, const Value& value, const Bound& arguments) {
  const Value otherwise = arguments.get(0, Value::of(std::int64_t{0}));
  if (const auto index = value.index()) return Value::of(*index);
  if (value.is(Kind::kBigInteger)) return value;
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  double number = 0;
  if (value.is(Kind::kText)) {
    BASCULE_TRY(machine.charge_bytes(value.text().size()));
    std::string_view text = stripped(value.text(), Side::kBoth);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    std::int64_t integer = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), integer);
    if (!text.empty() && read.ptr == text.data() + text.size() && read.ec == std::errc()) return Value::of(integer);
    if (read.ec == std::errc::result_out_of_range || may_be_another_number(text))
      return unimplemented("int: of texts, only numbers of at most 64 bits in plain digits are read here");
    const std::optional<double> read_float = float_in(text);
    if (!read_float) return otherwise;
    number = *read_float;
  } else if (value.is(Kind::kFloat)) {
    number = value.number();
  } else {
    return otherwise;
  }
  if (std::isnan(number)) return otherwise;
  if (std::isinf(number))
    return value.is(Kind::kFloat) ? absl::StatusOr<Value>(otherwise) : invalid_argument("int: the number is infinite");
  if (number < kTwoTo63 && number >= -kTwoTo63) return Value::of(static_cast<std::int64_t>(number));
  return unimplemented("int: the integer needs more than 64 bits, which is not supported");
}

absl::StatusOr<Value> to_float(Machine& machine, const Value& value, const Bound& arguments) {
  if (value.is_number()) return Value::of(value.number());
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  const Value otherwise = arguments.get(0, Value::of(0.0));
  if (!value.is(Kind::kText)) return otherwise;
  BASCULE_TRY(machine.charge_bytes(value.text().size()));
  if (may_be_another_number(value.text())) return unimplemented("float: only plain digits are read here");
  const std::optional<double> number = float_in(value.text());
  return number ? Value::of(*number) : otherwise;
}

// round(value, precision): half to even, of the float as it is stored.
absl::StatusOr<Value> rounded(double number, std::int64_t precision) {
  constexpr std::int64_t kMost = 323;  // a float has at most that many places
  if (!std::isfinite(number) || precision > kMost) return Value::of(number);
  std::array<char, 700> digits{};
  std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), number);
  return Value::of(std::strtod(digits.data(), nullptr));
}

absl::StatusOr<Value> round(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const auto given, arguments.integer(0));
  BASCULE_ASSIGN(const auto method, arguments.text(1));
  if (arguments.find(1) != nullptr && method != "common" && method != "ceil" && method != "floor")
    return invalid_argument("round: expected the method common, ceil or floor");
  const std::int64_t precision = given.value_or(0);
  if (arguments.find(0) != nullptr && !given) return unimplemented("round: a precision of None is not supported");
  if (precision < 0) return unimplemented("round: a negative precision is not supported");
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is_number()) return invalid_argument("round: expected a number, found ", value.type());
  if (!method || method == "common")
    return value.index() ? absl::StatusOr<Value>(Value::of(*value.index())) : rounded(value.number(), precision);
  constexpr std::int64_t kMostPlaces = 18;
  if (precision > kMostPlaces) return unimplemented("round: a precision above ", kMostPlaces, " is not supported");
  BASCULE_ASSIGN(const Value factor,
                 compute(machine, Operator::kPower, Value::of(std::int64_t{10}), Value::of(precision)));
  BASCULE_ASSIGN(const Value product, compute(machine, Operator::kMultiply, value, factor));
  if (product.index()) return compute(machine, Operator::kDivide, product, factor);
  const double whole = method == "ceil" ? std::ceil(product.number()) : std::floor(product.number());
  if (!(std::abs(whole) < kTwoTo63)) return unimplemented("round: the number is too large");
  return compute(machine, Operator::kDivide, Value::of(static_cast<std::int64_t>(whole)), factor);
}

absl::StatusOr<Value> absolute(Machine&, const Value& value, const Bound&) {
  if (value.is(Kind::kFloat)) return Value::of(std::fabs(value.number()));
  if (const auto index = value.index()) return *index < 0 ? negative(value) : Value::of(*index);
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  return invalid_argument("abs: expected a number, found ", value.type());
}

}  // namespace

const std::vector<Filter>& text_filters() {
  static const auto* table = new std::vector<Filter>{
      {"string", "", to_string},
      {"safe", "", safe},
      {"escape", "", escape<false>},
      {"e", "", escape<false>},
      {"forceescape", "", escape<true>},
      {"trim", "chars?", trim},
      {"upper", "", filter_case<Case::kUpper>},
      {"lower", "", filter_case<Case::kLower>},
      {"capitalize", "", filter_case<Case::kCapitalized>},
      {"title", "", filter_case<Case::kTitle>},
      {"replace", "old new count?", filter_replace},
      {"indent", "width? first? blank?", indent},
      {"int", "default? base!", to_integer},
      {"float", "default?", to_float},
      {"abs", "", absolute},
      {"round", "precision? method?", round},
      {"from_json", "", from_json},
      {"tojson", "ensure_ascii? indent? separators? sort_keys?", to_json_text},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
