// JSON as Python's json.dumps() writes it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

std::string json_float(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return float_text(number);
}

class JsonWriter {
 public:
  JsonWriter(Machine& machine, const JsonStyle& style) : machine_(machine), style_(style) {}
  std::string text;

  absl::Status write(const Value& value, int depth) {
    const std::size_t before = text.size();
    BASCULE_TRY(write_value(value, depth));
    BASCULE_TRY(machine_.charge((text.size() - before) / 64 + 1));
    return machine_.charge_bytes(text.size() > before + 4096 ? text.size() : 0);
  }

 private:
  void escape(char32_t code) {
    std::array<char, 16> digits{};
    std::snprintf(digits.data(), digits.size(), "\\u%04x", static_cast<unsigned>(code));
    text += digits.data();
  }

  void write_text(std::string_view value) {
    text += '"';
    for (std::size_t at = 0; at < value.size();) {
      const std::size_t begin = at;
      const char32_t code = next_code_point(value, at);
      constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kEscaped = "\"\\nrtbf";
      const std::size_t known = code < 0x80 ? kPlain.find(static_cast<char>(code)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        text += '\\';
        text += kEscaped[known];
      } else if (code < 0x20 || (style_.ascii && code >= 0x7F && code < 0x10000)) {
        escape(code);
      } else if (style_.ascii && code >= 0x10000) {  // a surrogate pair
        escape(0xD800 + ((code - 0x10000) >> 10));
        escape(0xDC00 + ((code - 0x10000) & 0x3FF));
      } else {
        text += value.substr(begin, at - begin);
      }
    }
    text += '"';
  }

  absl::Status write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kText: write_text(key.text()); return absl::OkStatus();
      case Kind::kNone: text += "\"null\""; return absl::OkStatus();
      case Kind::kBool: text += key.flag() ? "\"true\"" : "\"false\""; return absl::OkStatus();
      case Kind::kInteger: text += cat("\"", key.integer(), "\""); return absl::OkStatus();
      case Kind::kFloat: text += cat("\"", json_float(key.number()), "\""); return absl::OkStatus();
      case Kind::kBigInteger: text += cat("\"", key.digits(), "\""); return absl::OkStatus();
      default: return invalid_argument("tojson: a ", key.type(), " cannot be a key in JSON");
    }
  }

  absl::Status sort_by_key(std::vector<std::pair<Value, Value>>& items) {
    absl::Status failed;
    std::stable_sort(items.begin(), items.end(), [&](const auto& left, const auto& right) {
      const absl::StatusOr<bool> is_less = failed.ok() ? less(machine_, left.first, right.first) : failed;
      if (!is_less.ok()) failed = is_less.status();
      return is_less.ok() && *is_less;
    });
    return failed;
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    text += '\n';
    for (int i = 0; i < depth; ++i) text += *style_.indent;
  }

  // `write_item` writes item i.
  template <typename WriteItem>
  absl::Status write_items(std::size_t size, char open, char close, int depth, const WriteItem& write_item) {
    text += open;
    for (std::size_t i = 0; i < size; ++i) {
      if (i > 0) text += style_.between_items;
      new_line(depth + 1);
      BASCULE_TRY(write_item(i));
    }
    if (size > 0) new_line(depth);
    text += close;
    return absl::OkStatus();
  }

  absl::Status write_value(const Value& value, int depth) {
    switch (value.kind()) {
      case Kind::kNone: text += "null"; return absl::OkStatus();
      case Kind::kBool: text += value.flag() ? "true" : "false"; return absl::OkStatus();
      case Kind::kInteger: text += cat(value.integer()); return absl::OkStatus();
      case Kind::kFloat: text += json_float(value.number()); return absl::OkStatus();
      case Kind::kBigInteger: text += value.digits(); return absl::OkStatus();
      case Kind::kText: write_text(value.text()); return absl::OkStatus();
      case Kind::kList:
      case Kind::kTuple:
        return write_items(value.items().size(), '[', ']', depth,
                           [&](std::size_t i) { return write(value.items()[i], depth + 1); });
      case Kind::kDict: {
        auto items = value.dict()->items;
        if (style_.sort_keys) BASCULE_TRY(sort_by_key(items));
        return write_items(items.size(), '{', '}', depth, [&](std::size_t i) -> absl::Status {
          BASCULE_TRY(write_key(items[i].first));
          text += style_.between_key_and_value;
          return write(items[i].second, depth + 1);
        });
      }
      case Kind::kUndefined: return invalid_argument("tojson: the value is undefined, which JSON does not have");
      default: return invalid_argument("tojson: JSON has no ", value.type());
    }
  }

  Machine& machine_;
  const JsonStyle& style_;
};

}  // namespace

absl::StatusOr<std::string> to_json(Machine& machine, const Value& value, const JsonStyle& style) {
  JsonWriter writer(machine, style);
  BASCULE_TRY(writer.write(value, 0));
  return std::move(writer.text);
}

}  // namespace bascule::ref::jinja
