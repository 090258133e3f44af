#include <bascule/trainer_ref/chat/format.h>

#include <algorithm>
#include <optional>

#include <bascule/trainer_ref/chat/format_spec.h>
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

}  // namespace

absl::StatusOr<Value> format_braces(Machine& machine, std::string_view text, const Arguments& arguments) {
  constexpr int kNested = 1;  // "{:{}}" takes the format from the arguments
  BASCULE_ASSIGN(std::string result, BraceFormatter(machine, arguments).format(text, kNested));
  return Value::of(std::move(result));
}

}  // namespace bascule::ref::jinja
