#include <bascule/trainer_ref/chat/string_literal.h>

#include <array>
#include <cstdio>

#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

namespace bascule::ref::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// \xNN, \uNNNN or \UNNNNNNNN, whichever is the shortest.
std::string escaped(char32_t code) {
  std::array<char, 12> text{};
  const char* format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text.data(), text.size(), format, static_cast<unsigned>(code));
  return text.data();
}

absl::Status append_code(std::string& text, char32_t code, std::string_view literal) {
  if (code >= 0xD800 && code < 0xE000) {
    return unimplemented("the escape ", literal, " is half of a surrogate pair, which UTF-8 cannot have");
  }
  if (code > 0x10FFFF) return invalid_argument("the escape ", literal, " is no code point");
  append_utf8(text, code);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> unescape(std::string_view literal) {
  std::string text;
  text.reserve(literal.size());
  for (std::size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\') {
      text += literal[at++];
      continue;
    }
    const std::size_t begin = at++;
    if (at == literal.size()) return invalid_argument("a text ends with a lone \\");
    const char c = literal[at];
    if (static_cast<unsigned char>(c) >= 0x80) {  // Jinja escapes it first, and the two escapes become one
      text += escaped(next_code_point(literal, at));
      continue;
    }
    ++at;
    constexpr std::string_view kPlain = "\\'\"abfnrtv\n";
    constexpr std::string_view kMeant{"\\'\"\a\b\f\n\r\t\v\0", 11};
    if (const std::size_t known = kPlain.find(c); known != std::string_view::npos) {
      if (c != '\n') text += kMeant[known];  // a line's end behind a backslash is nothing
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t code = 0;
      for (std::size_t i = 0; i < digits; ++i, ++at) {
        const int digit = at < literal.size() ? hex_digit(literal[at]) : -1;
        if (digit < 0) {
          return invalid_argument("expected ", digits, " hexadecimal digits behind \\", std::string(1, c), ", found ",
                                  literal.substr(begin, at - begin + 1));
        }
        code = code << 4 | static_cast<char32_t>(digit);
      }
      BASCULE_TRY(append_code(text, code, literal.substr(begin, at - begin)));
    } else if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && at < literal.size() && literal[at] >= '0' && literal[at] <= '7'; ++i, ++at) {
        code = code << 3 | static_cast<char32_t>(literal[at] - '0');
      }
      BASCULE_TRY(append_code(text, code, literal.substr(begin, at - begin)));
    } else if (c == 'N') {
      return unimplemented("the escape \\N is not read here; write the character itself");
    } else {
      text += '\\';
      text += c;
    }
  }
  return text;
}

std::string text_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (code == '\n') {
      result += "\\n";
    } else if (code == '\r') {
      result += "\\r";
    } else if (code == '\t') {
      result += "\\t";
    } else if (code == '\\' || code == static_cast<char32_t>(quote)) {
      result += '\\';
      result += static_cast<char>(code);
    } else if (is_printable(code)) {
      result += text.substr(begin, at - begin);
    } else {
      result += escaped(code);
    }
  }
  return result += quote;
}

}  // namespace bascule::ref::jinja
