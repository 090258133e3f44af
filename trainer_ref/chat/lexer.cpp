#include <bascule/trainer_ref/chat/lexer.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Resolves the escapes that real templates use.
absl::StatusOr<std::string> unescape(std::string_view literal) {
  std::string text;
  text.reserve(literal.size());
  for (std::size_t at = 0; at < literal.size(); ++at) {
    if (literal[at] != '\\') {
      text += literal[at];
      continue;
    }
    const char c = literal[++at];  // the lexer took it together with the backslash
    constexpr std::string_view kPlain = "\\'\"nrt", kMeant = "\\'\"\n\r\t";
    if (const std::size_t known = kPlain.find(c); known != std::string_view::npos) {
      text += kMeant[known];
      continue;
    }
    if (c != 'x' && c != 'u') {
      return unimplemented("the escape \\", is_beyond_ascii(c) ? "and a character beyond ASCII" : std::string(1, c),
                           " is not supported");
    }
    const std::size_t digits = c == 'x' ? 2 : 4;
    char32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const int digit = ++at < literal.size() ? hex_digit(literal[at]) : -1;
      if (digit < 0) return invalid_argument("expected ", digits, " hexadecimal digits after \\", std::string(1, c));
      code = code << 4 | static_cast<char32_t>(digit);
    }
    if (code >= 0xD800 && code < 0xE000) {
      return unimplemented("half of a surrogate pair, which UTF-8 cannot have, is not supported");
    }
    append_utf8(text, code);
  }
  return text;
}

// Turns line ends into \n, and removes one at the very end.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalized(source)) {}

  absl::StatusOr<std::vector<Token>> run() {
    while (at_ < text_.size()) BASCULE_TRY(data());
    push(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Pieces>
  absl::Status error(const Pieces&... pieces) const {
    return invalid_argument("line ", line_, ": ", pieces...);
  }
  void push(Token::Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  bool looking_at(std::string_view text) const { return std::string_view(text_).substr(at_, text.size()) == text; }
  // Advances to `to`, counting lines.
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    if (to > at_) line_starting_ = text_[to - 1] == '\n';
    at_ = to;
  }
  std::size_t behind_space(std::size_t from) const {
    return text_.size() - stripped(std::string_view(text_).substr(from), Side::kLeft).size();
  }
  // Returns the place after `end` ("%}" or "#}") at `from` and after the whitespace that goes with it; npos if `end` is
  // not there.
  std::size_t behind_end(std::size_t from, std::string_view end) const {
    const std::string_view rest = std::string_view(text_).substr(from);
    if (rest.substr(0, 1) == "-" && rest.substr(1, 2) == end) return behind_space(from + 3);
    if (end != "}}" && rest.substr(0, 1) == "+" && rest.substr(1, 2) == end) return from + 3;
    if (rest.substr(0, 2) != end) return std::string::npos;
    return end != "}}" && rest.substr(2, 1) == "\n" ? from + 3 : from + 2;
  }
  // Returns the start of the text after `{% raw %}` at `from`; npos if another tag is there.
  std::size_t behind_raw(std::size_t from) const {
    std::size_t at = from + 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    at = behind_space(at);
    if (text_.compare(at, 3, "raw") != 0) return std::string::npos;
    at = behind_space(at + 3);
    if (text_.compare(at, 3, "-%}") == 0) return behind_space(at + 3);
    return text_.compare(at, 2, "%}") == 0 ? at + 2 : std::string::npos;
  }

  // Adds data up to a tag whose third character is `sign`, without the whitespace that the tag removes.
  void push_data(std::string_view data, char sign, bool is_variable) {
    std::string_view kept = data;
    if (sign == '-') {
      kept = stripped(data, Side::kRight);
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = data.rfind('\n');
      const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting_) && stripped(data.substr(begin), Side::kBoth).empty())
        kept = data.substr(0, begin);
    }
    if (!kept.empty()) push(Token::Kind::kData, std::string(kept));
  }

  absl::Status data() {
    std::size_t tag = at_;
    for (; tag < text_.size(); ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == text_.size()) break;
      if (text_[tag + 1] == '{' || text_[tag + 1] == '%' || text_[tag + 1] == '#') break;
    }
    if (tag == std::string::npos || tag + 1 >= text_.size()) {
      push(Token::Kind::kData, text_.substr(at_));
      advance(text_.size());
      return absl::OkStatus();
    }
    const char kind = text_[tag + 1];
    const bool has_sign = tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+');
    push_data(std::string_view(text_).substr(at_, tag - at_), has_sign ? text_[tag + 2] : ' ', kind == '{');
    advance(tag);
    if (kind == '%') {
      if (const std::size_t raw = behind_raw(tag); raw != std::string::npos) return raw_text(raw);
    }
    const std::size_t inside = tag + 2 + (has_sign ? 1 : 0);
    if (kind == '#') return comment(inside);
    push(kind == '{' ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, "");
    advance(inside);
    return kind == '{' ? inside_tag("}}", Token::Kind::kVariableEnd) : inside_tag("%}", Token::Kind::kBlockEnd);
  }

  absl::Status comment(std::size_t from) {
    for (std::size_t at = from; at < text_.size(); ++at) {
      const std::size_t behind = behind_end(at, "#}");
      if (behind == std::string::npos) continue;
      advance(behind);
      return absl::OkStatus();
    }
    return error("expected #} at the end of a comment, found none");
  }

  absl::Status raw_text(std::size_t from) {
    advance(from);
    if (from == text_.size()) return absl::OkStatus();  // Jinja2 accepts it
    for (std::size_t at = from; (at = text_.find("{%", at)) != std::string::npos; at += 2) {
      std::size_t inside = at + 2;
      const char sign = inside < text_.size() ? text_[inside] : ' ';
      if (sign == '-' || sign == '+') ++inside;
      inside = behind_space(inside);
      if (text_.compare(inside, 6, "endraw") != 0) continue;
      const std::size_t behind = behind_end(behind_space(inside + 6), "%}");
      if (behind == std::string::npos) continue;
      push_data(std::string_view(text_).substr(from, at - from), sign, false);
      advance(behind);
      return absl::OkStatus();
    }
    return error("expected {% endraw %}, found none");
  }

  // The tokens of an expression or a statement, up to its end.
  absl::Status inside_tag(std::string_view end, Token::Kind kind) {
    while (at_ < text_.size()) {
      const std::size_t behind = brackets_.empty() ? behind_end(at_, end) : std::string::npos;
      if (behind != std::string::npos) {
        push(kind, "");
        advance(behind);
        return absl::OkStatus();
      }
      if (const std::size_t next = behind_space(at_); next > at_) {
        advance(next);
        continue;
      }
      BASCULE_TRY(token());
    }
    return error("expected ", end, " at the end of a tag, found the end of the template");
  }

  absl::Status token() {
    const char c = text_[at_];
    if (is_digit(c)) return number();
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end]))) ++end;
      if (end < text_.size() && is_beyond_ascii(text_[end])) return beyond_ascii();
      push(Token::Kind::kName, text_.substr(at_, end - at_));
      advance(end);
      return absl::OkStatus();
    }
    if (is_beyond_ascii(c)) return beyond_ascii();
    if (c == '\'' || c == '"') return string(c);
    return sign();
  }

  absl::Status beyond_ascii() const {
    return unimplemented("line ", line_, ": a name with characters beyond ASCII is not supported");
  }

  absl::Status string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return error("expected ", std::string(1, quote), " at the end of a text, found none");
    auto value = unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1));
    if (!value.ok()) return annotate(value.status(), cat("line ", line_));
    push(Token::Kind::kText, *std::move(value));
    advance(end + 1);
    return absl::OkStatus();
  }

  // Returns the end of the digits that satisfy `is`, with single underscores between them.
  template <typename Is>
  std::size_t behind_digits(std::size_t from, const Is& is) const {
    std::size_t at = from;
    while (at < text_.size()) {
      if (is(text_[at])) {
        ++at;
      } else if (text_[at] == '_' && at + 1 < text_.size() && is(text_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  // Returns the end of a float, or `at_` if there is none. After a dot there is none: x.0.1 is two subscripts.
  std::size_t behind_float() const {
    if (at_ > 0 && text_[at_ - 1] == '.') return at_;
    const std::size_t whole = behind_digits(at_, is_digit);
    std::size_t at = whole;
    bool is_float = false;
    if (at + 1 < text_.size() && text_[at] == '.' && is_digit(text_[at + 1])) {
      at = behind_digits(at + 1, is_digit);
      is_float = true;
    }
    if (at < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      std::size_t exponent = at + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit(text_[exponent])) return behind_digits(exponent, is_digit);
    }
    return is_float ? at : at_;
  }

  absl::Status number() {
    const auto digits = [&](std::size_t from, std::size_t to) {
      std::string plain = text_.substr(from, to - from);
      plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
      return plain;
    };
    if (const std::size_t end = behind_float(); end > at_) {
      const std::string plain = digits(at_, end);
      double value = 0;
      if (std::from_chars(plain.data(), plain.data() + plain.size(), value).ec != std::errc()) {
        return unimplemented("line ", line_, ": the number ", plain, " is beyond what a float can be");
      }
      return push_number(Value::of(value), end);
    }
    int base = 10;
    std::size_t from = at_, end = 0;
    const char prefix = text_[at_] == '0' && at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 0x20) : ' ';
    const auto is_of = [&base](char c) {
      const char lower = static_cast<char>(c | 0x20);
      return (is_digit(c) && c - '0' < base) || (base == 16 && lower >= 'a' && lower <= 'f');
    };
    if (prefix == 'x' || prefix == 'o' || prefix == 'b') {
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
      from = at_ + 2 + (at_ + 2 < text_.size() && text_[at_ + 2] == '_' ? 1 : 0);
      end = behind_digits(from, is_of);
    }
    if (end <= from) {  // no digit after the prefix: it is a 0 and a name
      base = 10;
      from = at_;
      end = text_[at_] != '0' ? behind_digits(at_, is_digit) : behind_digits(at_, [](char c) { return c == '0'; });
    }
    const std::string plain = digits(from, end);
    std::int64_t value = 0;
    const auto parsed = std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
    if (parsed.ec != std::errc()) {
      return unimplemented("line ", line_, ": the integer ", plain, " needs more than 64 bits, which is not supported");
    }
    return push_number(Value::of(value), end);
  }

  absl::Status push_number(Value value, std::size_t end) {
    push(Token::Kind::kNumber, text_.substr(at_, end - at_));
    tokens_.back().number = std::move(value);
    advance(end);
    return absl::OkStatus();
  }

  absl::Status sign() {
    static constexpr std::array<std::string_view, 26> kSigns = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto found = std::find_if(kSigns.begin(), kSigns.end(), [&](std::string_view s) { return looking_at(s); });
    if (found == kSigns.end()) return error("unexpected character '", text_.substr(at_, 1), "'");
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) return error("unexpected '", *found, "'");
      if (brackets_.back() != c) {
        return error("expected '", std::string(1, brackets_.back()), "', found '", *found, "'");
      }
      brackets_.pop_back();
    }
    push(Token::Kind::kOperator, std::string(*found));
    advance(at_ + found->size());
    return absl::OkStatus();
  }

  const std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last thing read ended with a newline
  std::string brackets_;       // closing brackets that are still due, the innermost last
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> tokenize(std::string_view source) {
  if (!is_utf8(source)) return invalid_argument("expected UTF-8, found other bytes");
  return Lexer(source).run();
}

}  // namespace bascule::ref::jinja
