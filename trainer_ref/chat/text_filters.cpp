// Filters over texts, and those that make one.
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/strings.h>
#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

namespace bascule::ref::jinja {
namespace {

// What most of these filters begin with: str() of the value. A text marked safe would stay so in Jinja2.
absl::StatusOr<std::string> plain_text(Machine& machine, const Value& value) {
  if (value.is_safe()) return unimplemented("this filter of a text marked safe is not done here");
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

absl::StatusOr<Value> to_upper(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const std::string text, plain_text(machine, value));
  return Value::of(upper(text));
}

absl::StatusOr<Value> to_lower(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const std::string text, plain_text(machine, value));
  BASCULE_TRY(check_case(text));
  return Value::of(lower(text));
}

absl::StatusOr<Value> capitalize(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const std::string text, plain_text(machine, value));
  BASCULE_TRY(check_case(text));
  return Value::of(capitalized(text));
}

// Each word begins with a capital; words are what stands between spaces, dashes and opening brackets.
absl::StatusOr<Value> title(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const std::string text, plain_text(machine, value));
  BASCULE_TRY(check_case(text));
  std::string result;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    const std::string character = text.substr(begin, at - begin);
    const bool separates = is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    result += inside ? lower(character) : upper(character);
    inside = !separates;
  }
  return Value::of(std::move(result));
}

absl::StatusOr<Value> replace(Machine& machine, const Value& value, const Bound& arguments) {
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
  for (const std::string_view line : split_lines(text, false)) {
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
  style.ensure_ascii = arguments.flag(0);
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

}  // namespace

const std::vector<Filter>& text_filters() {
  static const auto* table = new std::vector<Filter>{
      {"string", "", to_string},
      {"safe", "", safe},
      {"trim", "chars?", trim},
      {"upper", "", to_upper},
      {"lower", "", to_lower},
      {"capitalize", "", capitalize},
      {"title", "", title},
      {"replace", "old new count?", replace},
      {"indent", "width? first? blank?", indent},
      {"tojson", "ensure_ascii? indent? separators? sort_keys?", to_json_text},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
