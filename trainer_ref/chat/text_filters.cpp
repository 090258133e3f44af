// Filters over texts and numbers, and filters that return one.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/texts.h>
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
  if (arguments.flag(0)) return unimplemented("tojson: ensure_ascii=true is not supported");
  if (arguments.flag(3)) return unimplemented("tojson: sort_keys=true is not supported");
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

constexpr double kTwoTo63 = 9223372036854775808.0;

// Reads texts that are whole numbers in ASCII digits. A text without digits is no number, except "inf" and "nan".
absl::StatusOr<Value> to_integer(Machine& machine, const Value& value, const Bound& arguments) {
  const Value otherwise = arguments.get(0, Value::of(std::int64_t{0}));
  if (const auto index = value.index()) return Value::of(*index);
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (value.is(Kind::kFloat)) {
    if (!std::isfinite(value.number())) return otherwise;
    if (value.number() < kTwoTo63 && value.number() >= -kTwoTo63) {
      return Value::of(static_cast<std::int64_t>(value.number()));
    }
    return unimplemented("int: the integer needs more than 64 bits, which is not supported");
  }
  if (!value.is(Kind::kText)) return otherwise;
  BASCULE_TRY(machine.charge_bytes(value.text().size()));
  const std::string_view text = stripped(value.text(), Side::kBoth);
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && read.ptr == text.data() + text.size() && read.ec == std::errc()) return Value::of(number);
  const bool may_be_a_number = std::any_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || std::string_view("nN").find(c) != std::string_view::npos ||
           static_cast<unsigned char>(c) >= 0x80;
  });
  if (!may_be_a_number) return otherwise;
  return unimplemented("int: of texts, only whole numbers of at most 64 bits are read here");
}

absl::StatusOr<Value> to_float(Machine&, const Value& value, const Bound& arguments) {
  if (value.is_number()) return Value::of(value.number());
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (value.is(Kind::kText)) return unimplemented("float: texts are not supported");
  return arguments.get(0, Value::of(0.0));
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
      {"tojson", "ensure_ascii? indent? separators? sort_keys?", to_json_text},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
