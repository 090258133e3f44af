#include <bascule/trainer_ref/chat/percent.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include <bascule/trainer_ref/chat/format_spec.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

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

absl::StatusOr<Value> format_percent(Machine& machine, std::string_view text, const Value& values) {
  BASCULE_ASSIGN(std::string result, PercentFormatter(machine, text, values).format());
  return Value::of(std::move(result));
}

}  // namespace bascule::ref::jinja
