#include <bascule/trainer_ref/chat/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

bool is_index(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_decimal_digit);
}

// Reads digits at `at`, and moves it past them. Returns `otherwise` if there are none.
absl::StatusOr<std::int64_t> read_size(std::string_view text, std::size_t& at, std::int64_t otherwise) {
  std::int64_t size = otherwise;
  for (; at < text.size() && is_decimal_digit(text[at]); ++at) {
    size = std::max<std::int64_t>(size, 0) * 10 + (text[at] - '0');
    if (size > (std::int64_t{1} << 31)) return invalid_argument("format: too many digits in a width or precision");
  }
  return size;
}

absl::StatusOr<FormatSpec> read_spec(std::string_view text) {
  FormatSpec spec;
  constexpr std::string_view kAligns = "<>=^";
  std::size_t at = 0, second = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && kAligns.find(text[i]) != std::string_view::npos;
  };
  if (!text.empty()) next_code_point(text, second);
  const bool has_fill = is_align(second);
  if (has_fill) {
    spec.fill = std::string(text.substr(0, second));
    at = second;
  }
  if (is_align(at)) spec.align = text[at++];
  const auto take = [&](std::string_view characters) {
    return at < text.size() && characters.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  if (take("z") != 0) return unimplemented("format: 'z' is not supported");
  spec.alternate = take("#") != 0;
  if (take("0") != 0 && !has_fill) {
    spec.fill = "0";
    if (spec.align == 0) spec.align = '0';  // '=' for numbers; texts have their default
  }
  BASCULE_ASSIGN(spec.width, read_size(text, at, 0));
  spec.grouping = take(",_");
  if (take(".") != 0) {
    BASCULE_ASSIGN(spec.precision, read_size(text, at, -1));
    if (spec.precision < 0) return invalid_argument("format: expected a precision after '.'");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) return invalid_argument("format: cannot read the format '", text, "'");
  return spec;
}

// format(value, spec)
absl::StatusOr<std::string> formatted(Machine& machine, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(machine, value);
  BASCULE_ASSIGN(FormatSpec spec, read_spec(text));
  const bool zeros = spec.align == '0';
  if (value.is(Kind::kText)) {
    if (zeros) spec.align = 0;
    return format_text(machine, value.text(), spec);
  }
  if (!value.is_number()) return invalid_argument("format: '", value.type(), "' takes no format");
  if (zeros) spec.align = '=';
  return format_number(machine, value, spec);
}

class BraceFormatter {
 public:
  BraceFormatter(Machine& machine, const Arguments& arguments) : machine_(machine), arguments_(arguments) {}

  absl::StatusOr<std::string> format(std::string_view text, int depth) {
    if (depth < 0) return invalid_argument("format: formats nest too deep");
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      const char c = text[at++];
      if (c != '{' && c != '}') {
        result += c;
      } else if (at < text.size() && text[at] == c) {
        result += text[at++];
      } else if (c == '}') {
        return invalid_argument("format: a single '}' in the text");
      } else {
        const std::size_t end = end_of_field(text, at);
        if (end == std::string_view::npos) return invalid_argument("format: expected '}' before the end of the text");
        BASCULE_ASSIGN(const std::string field, write_field(text.substr(at, end - at), depth));
        BASCULE_TRY(machine_.check_size(result.size() + field.size()));
        result += field;
        at = end + 1;
      }
    }
    BASCULE_TRY(machine_.charge_bytes(text.size() + result.size()));
    return result;
  }

 private:
  static std::size_t end_of_field(std::string_view text, std::size_t at) {
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    return std::string_view::npos;
  }

  // "name.key[0]!r:>8": the value, how it becomes a text, and its format.
  absl::StatusOr<std::string> write_field(std::string_view field, int depth) {
    BASCULE_TRY(machine_.charge(1));
    const std::size_t name_end = std::min(field.find_first_of("!:"), field.size());
    BASCULE_ASSIGN(Value value, find(field.substr(0, name_end)));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion == 'a') return unimplemented("format: the conversion !a is not supported");
      if ((conversion != 's' && conversion != 'r') || (rest.size() > 2 && rest[2] != ':'))
        return invalid_argument("format: expected !s or !r");
      BASCULE_ASSIGN(std::string text, conversion == 's' ? to_text(machine_, value) : to_repr(machine_, value));
      value = Value::of(std::move(text));
      rest.remove_prefix(2);
    }
    if (rest.empty()) return formatted(machine_, value, "");
    BASCULE_ASSIGN(const std::string spec, format(rest.substr(1), depth - 1));
    return formatted(machine_, value, spec);
  }

  absl::StatusOr<Value> find(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    BASCULE_ASSIGN(Value value, argument(name.substr(0, first_end)));
    for (std::string_view rest = name.substr(first_end); !rest.empty();) {
      const bool is_item = rest.front() == '[';
      rest.remove_prefix(1);
      const std::size_t end = is_item ? rest.find(']') : std::min(rest.find_first_of(".["), rest.size());
      if (end == std::string_view::npos || end == 0) return invalid_argument("format: cannot read the field ", name);
      const std::string_view key = rest.substr(0, end);
      rest.remove_prefix(is_item ? end + 1 : end);
      if (is_item && !rest.empty() && rest.front() != '.' && rest.front() != '[')
        return invalid_argument("format: expected '.' or '[' after ']'");
      if (is_item) {
        std::size_t at = 0;
        BASCULE_ASSIGN(const std::int64_t index, is_index(key) ? read_size(key, at, 0) : std::int64_t{0});
        BASCULE_ASSIGN(value, subscript(machine_, value, is_index(key) ? Value::of(index) : Value::of(key)));
      } else {
        BASCULE_ASSIGN(value, attribute(machine_, value, key));
      }
    }
    return value;
  }

  absl::StatusOr<Value> argument(std::string_view name) {
    if (name.empty() || is_index(name)) {
      if (counts_ && *counts_ != name.empty())
        return invalid_argument("format: fields are either all numbered or none is");
      counts_ = name.empty();
      std::size_t at = 0;
      BASCULE_ASSIGN(const std::int64_t given, read_size(name, at, 0));
      const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(given);
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      return invalid_argument("format: there is no argument ", index);
    }
    const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                    [&](const auto& each) { return each.first == name; });
    if (found != arguments_.named.end()) return found->second;
    return invalid_argument("format: there is no argument '", name, "'");
  }

  Machine& machine_;
  const Arguments& arguments_;
  std::optional<bool> counts_;  // whether fields have no numbers
  std::size_t next_ = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Machine& machine, std::string_view text, const Value& values)
      : machine_(machine), text_(text), values_(values) {}

  absl::StatusOr<std::string> format() {
    std::string result;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '%') {
        result += c;
        continue;
      }
      BASCULE_ASSIGN(const std::string field, write_field());
      BASCULE_TRY(machine_.check_size(result.size() + field.size()));
      result += field;
    }
    const std::size_t count = values_.is(Kind::kTuple) ? values_.items().size() : 1;
    const bool may_be_left =
        values_.is(Kind::kDict) || values_.is(Kind::kList) || values_.is(Kind::kRange) || values_.is(Kind::kUndefined);
    if (next_ < count && !may_be_left) return invalid_argument("%: not all values are used by the text");
    BASCULE_TRY(machine_.charge_bytes(text_.size() + result.size()));
    return result;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  absl::StatusOr<std::string> write_field() {
    BASCULE_TRY(machine_.charge(1));
    std::optional<std::string_view> key;
    if (peek() == '(') {
      const std::size_t end = text_.find(')', at_);
      if (end == std::string_view::npos) return invalid_argument("%: expected ')' after a name");
      key = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    }
    FormatSpec spec;
    bool left = false, zeros = false;
    for (; at_ < text_.size() && std::string_view("-+ 0#").find(peek()) != std::string_view::npos; ++at_) {
      left = left || peek() == '-';
      zeros = zeros || peek() == '0';
      spec.alternate = spec.alternate || peek() == '#';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    }
    if (peek() == '*') return unimplemented("%: a width or precision from the values is not supported");
    BASCULE_ASSIGN(spec.width, read_size(text_, at_, 0));
    if (peek() == '.') {
      ++at_;
      if (peek() == '*') return unimplemented("%: a width or precision from the values is not supported");
      BASCULE_ASSIGN(spec.precision, read_size(text_, at_, 0));
      spec.precision = std::max<std::int64_t>(spec.precision, 0);
    }
    while (peek() != '\0' && std::string_view("hlL").find(peek()) != std::string_view::npos) ++at_;
    const char type = peek();
    if (type == '\0') return invalid_argument("%: the text ends within a format");
    ++at_;
    if (type == '%') return "%";
    BASCULE_ASSIGN(const Value value, next(key));
    if (type == 's' || type == 'r') {
      BASCULE_ASSIGN(const std::string text, type == 's' ? to_text(machine_, value) : to_repr(machine_, value));
      FormatSpec of_text{.align = left ? '<' : '>', .width = spec.width, .precision = spec.precision};
      return format_text(machine_, text, of_text);
    }
    spec.align = left ? '<' : zeros ? '=' : '>';
    if (zeros && !left) spec.fill = "0";
    return write_number(value, type, spec);
  }

  absl::StatusOr<std::string> write_number(const Value& value, char type, FormatSpec spec) {
    const bool integers = std::string_view("diuxXo").find(type) != std::string_view::npos;
    const bool floats = std::string_view("eEfFgG").find(type) != std::string_view::npos;
    if (type == 'c' || type == 'a')
      return unimplemented("%: the type ", std::string_view(&type, 1), " is not supported");
    if (!integers && !floats) return invalid_argument("%: there is no type '", std::string_view(&type, 1), "'");
    if (!value.is_number())
      return invalid_argument("%: the type ", std::string_view(&type, 1), " needs a number, found ", value.type());
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (floats) return format_number(machine_, value, spec);
    if (spec.precision >= 0) return unimplemented("%: a precision of an integer is not supported");
    if (value.index()) return format_number(machine_, Value::of(*value.index()), spec);
    if (spec.type != 'd')
      return invalid_argument("%: the type ", std::string_view(&type, 1), " needs an integer, found float");
    if (!std::isfinite(value.number())) return invalid_argument("%: the number is not finite");
    constexpr double kTwoTo63 = 9223372036854775808.0;
    if (!(std::abs(value.number()) < kTwoTo63)) return unimplemented("%: the integer needs more than 64 bits");
    return format_number(machine_, Value::of(static_cast<std::int64_t>(value.number())), spec);
  }

  absl::StatusOr<Value> next(std::optional<std::string_view> key) {
    if (key) {
      if (!values_.is(Kind::kDict)) return invalid_argument("%: a name needs a dict, found ", values_.type());
      const Value* found = values_.dict()->find(*key);
      if (found == nullptr) return invalid_argument("%: the dict has no '", *key, "'");
      return *found;
    }
    const std::size_t index = next_++;
    if (values_.is(Kind::kTuple) && index < values_.items().size()) return values_.items()[index];
    if (!values_.is(Kind::kTuple) && index == 0) return values_;
    return invalid_argument("%: there are more formats than values");
  }

  Machine& machine_;
  const std::string_view text_;
  const Value& values_;
  std::size_t at_ = 0, next_ = 0;
};

}  // namespace

absl::StatusOr<Value> format_braces(Machine& machine, std::string_view text, const Arguments& arguments) {
  constexpr int kNested = 1;  // "{:{}}" takes the format from the arguments
  BASCULE_ASSIGN(std::string result, BraceFormatter(machine, arguments).format(text, kNested));
  return Value::of(std::move(result));
}

absl::StatusOr<Value> format_percent(Machine& machine, std::string_view text, const Value& values) {
  BASCULE_ASSIGN(std::string result, PercentFormatter(machine, text, values).format());
  return Value::of(std::move(result));
}

}  // namespace bascule::ref::jinja
