#include <bascule/trainer_ref/chat/print.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

// repr() of a text, escaped where needed.
absl::StatusOr<std::string> text_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    constexpr std::string_view kEscaped = "\n\r\t", kLetters = "nrt";
    const std::size_t known = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : std::string_view::npos;
    const std::optional<bool> printable = is_printable(code);
    if (!printable) return unimplemented("a text in a list or dict has a character that is newer than Unicode 14");
    if (known != std::string_view::npos) {
      result += '\\';
      result += kLetters[known];
    } else if (!*printable) {
      std::array<char, 16> escape{};
      const char* const form = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape.data(), escape.size(), form, static_cast<unsigned>(code));
      result += escape.data();
    } else {
      if (code == '\\' || code == static_cast<char32_t>(quote)) result += '\\';
      result += text.substr(begin, at - begin);
    }
  }
  return result += quote;
}

class Printer {
 public:
  explicit Printer(Machine& machine) : machine_(machine) {}
  std::string text;

  absl::Status print(const Value& value, int depth = 0) {
    // Namespaces can hold themselves.
    if (depth > kMaxNesting) return invalid_argument("values that nest deeper than ", kMaxNesting, " are not printed");
    const std::size_t before = text.size();
    BASCULE_TRY(print_value(value, depth));
    BASCULE_TRY(machine_.charge((text.size() - before) / 64 + 1));
    return machine_.charge_bytes(text.size() > before + 4096 ? text.size() : 0);
  }

 private:
  absl::Status print_text(std::string_view value) {
    BASCULE_ASSIGN(const std::string quoted, text_repr(value));
    text += quoted;
    return absl::OkStatus();
  }

  absl::Status print_items(const std::vector<Value>& items, std::string_view open, std::string_view close, int depth) {
    text += open;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += ", ";
      BASCULE_TRY(print(items[i], depth + 1));
    }
    text += close;
    return absl::OkStatus();
  }

  absl::Status print_dict(const Dict& dict, int depth) {
    text += '{';
    for (std::size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) text += ", ";
      BASCULE_TRY(print(dict.items[i].first, depth + 1));
      text += ": ";
      BASCULE_TRY(print(dict.items[i].second, depth + 1));
    }
    text += '}';
    return absl::OkStatus();
  }

  absl::Status print_range(const Range& range) {
    text += cat("range(", range.start, ", ", range.stop);
    text += range.step == 1 ? std::string(")") : cat(", ", range.step, ")");
    return absl::OkStatus();
  }

  absl::Status print_value(const Value& value, int depth) {
    switch (value.kind()) {
      case Kind::kUndefined: text += "Undefined"; return absl::OkStatus();
      case Kind::kNone: text += "None"; return absl::OkStatus();
      case Kind::kBool: text += value.flag() ? "True" : "False"; return absl::OkStatus();
      case Kind::kInteger: text += cat(value.integer()); return absl::OkStatus();
      case Kind::kFloat: text += float_text(value.number()); return absl::OkStatus();
      case Kind::kBigInteger: text += value.digits(); return absl::OkStatus();
      case Kind::kText:
        if (value.is_safe()) return unimplemented("printing a text marked safe in a list or dict is not supported");
        return print_text(value.text());
      case Kind::kList: return print_items(value.items(), "[", "]", depth);
      case Kind::kTuple: return print_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")", depth);
      case Kind::kDict: return print_dict(*value.dict(), depth);
      case Kind::kView: {
        std::vector<Value> items;
        for (std::size_t i = 0; i < value.view().dict->items.size(); ++i) items.push_back(item_of(value.view(), i));
        return print_items(items, cat(value.type(), "(["), "])", depth);
      }
      case Kind::kRange: return print_range(value.range());
      case Kind::kNamespace:
        text += "<Namespace ";
        BASCULE_TRY(print_dict(value.space()->attributes, depth));
        text += '>';
        return absl::OkStatus();
      default: return unimplemented("printing a ", value.type(), " is not supported");
    }
  }

  Machine& machine_;
};

}  // namespace

absl::StatusOr<std::string> to_text(Machine& machine, const Value& value) {
  if (value.is(Kind::kText)) {
    BASCULE_TRY(machine.charge_bytes(value.text().size()));
    return value.text();
  }
  if (value.is(Kind::kUndefined)) return "";
  return to_repr(machine, value);
}

absl::StatusOr<std::string> to_repr(Machine& machine, const Value& value) {
  Printer printer(machine);
  BASCULE_TRY(printer.print(value));
  return std::move(printer.text);
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::scientific);
  // "-d.ddde±xx": sign, digits, exponent
  std::string_view scientific(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  std::string text;
  if (scientific.front() == '-') {
    text = "-";
    scientific.remove_prefix(1);
  }
  const std::size_t e = scientific.find('e');
  std::string digits(1, scientific.front());
  if (e > 1) digits += scientific.substr(2, e - 2);
  const std::string_view tail = scientific.substr(e + 1);
  int exponent = 0;
  std::from_chars(tail.data() + (tail.front() == '+' ? 1 : 0), tail.data() + tail.size(), exponent);
  const auto size = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    text += digits.substr(0, 1);
    if (size > 1) text += cat(".", digits.substr(1));
    const int magnitude = std::abs(exponent);
    return text + cat("e", exponent < 0 ? "-" : "+", magnitude < 10 ? "0" : "", magnitude);
  }
  if (exponent < 0) return text + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (size <= exponent + 1)
    return text + digits + std::string(static_cast<std::size_t>(exponent + 1 - size), '0') + ".0";
  return text + digits.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<std::size_t>(exponent) + 1);
}

std::string html_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '\'': result += "&#39;"; break;
      case '"': result += "&#34;"; break;
      default: result += c;
    }
  }
  return result;
}

}  // namespace bascule::ref::jinja
