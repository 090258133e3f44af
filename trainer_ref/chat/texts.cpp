#include <bascule/trainer_ref/chat/texts.h>

#include <utf8proc.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

std::size_t length_by_lead(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte >> 5 == 0x6 ? 2 : byte >> 4 == 0xE ? 3 : byte >> 3 == 0x1E ? 4 : 0;
}

std::string_view strip_left(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t behind = at;
    if (!is_space(next_code_point(text, behind))) break;
    at = behind;
  }
  return text.substr(at);
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    std::size_t behind = at;
    if (!is_space(next_code_point(text, behind))) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = length_by_lead(text[at]);
    if (length == 0 || length > text.size() - at) return false;
    for (std::size_t i = 1; i < length; ++i) {
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return false;
    }
    std::size_t behind = at;
    const char32_t code = next_code_point(text, behind);
    constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};  // by length: lower ones need fewer bytes
    if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    at = behind;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::size_t length = std::max<std::size_t>(length_by_lead(text[at]), 1);
  const auto lead = static_cast<unsigned char>(text[at]);
  char32_t code = length == 1 ? lead : lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length && at + i < text.size(); ++i) {
    code = (code << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  }
  at = std::min(at + length, text.size());
  return code;
}

void append_utf8(std::string& text, char32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::vector<std::size_t> code_point_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::optional<bool> is_printable(char32_t code) {
  if (code == U' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN: return std::nullopt;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool has_other_digits(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (code >= 0x80 && utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_ND) return true;
  }
  return false;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    const bool ends = (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string_view stripped(std::string_view text, Side side) {
  if (side != Side::kRight) text = strip_left(text);
  return side != Side::kLeft ? strip_right(text) : text;
}

std::string_view stripped(std::string_view text, std::string_view characters, Side side) {
  const auto is_one = [&](std::string_view character) {
    const std::size_t found = characters.find(character);  // UTF-8: one code point is never a part of another one
    return !character.empty() && found != std::string_view::npos;
  };
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  while (side != Side::kRight && !text.empty()) {
    std::size_t behind = 0;
    next_code_point(text, behind);
    if (!is_one(text.substr(0, behind))) break;
    text.remove_prefix(behind);
  }
  while (side != Side::kLeft && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && !begins(text[last])) --last;
    if (!is_one(text.substr(last))) break;
    text = text.substr(0, last);
  }
  return text;
}

absl::StatusOr<std::string> replaced(Machine& machine, std::string_view text, std::string_view from,
                                     std::string_view to, std::int64_t count) {
  BASCULE_TRY(machine.charge_bytes(text.size()));
  std::string result;
  std::size_t at = 0;
  for (; count != 0; --count) {
    std::size_t found = 0;
    if (from.empty()) {  // matches before each code point, and at the end
      if (at > text.size()) break;
      result += to;
      if (at == text.size()) {
        ++at;
        continue;
      }
      found = at;
      next_code_point(text, at);
      result += text.substr(found, at - found);
    } else {
      found = text.find(from, at);
      if (found == std::string_view::npos) break;
      result += text.substr(at, found - at);
      result += to;
      at = found + from.size();
    }
    BASCULE_TRY(machine.charge(to.size() / 64 + 1));
  }
  if (at < text.size()) result += text.substr(at);
  BASCULE_TRY(machine.charge_bytes(result.size()));
  return result;
}

namespace {

// The upper or lower case of one code point. Returns nullopt if Unicode has several code points for it (ß becomes SS),
// or if it depends on what surrounds it (Σ) or on its place in a word (ǆ).
std::optional<char32_t> cased(char32_t code, bool upper) {
  constexpr std::pair<char32_t, char32_t> kSeveral[] = {
      {0xDF, 0xDF},   {0x149, 0x149}, {0x1C4, 0x1CC},   {0x1F0, 0x1F3},   {0x390, 0x390},
      {0x3B0, 0x3B0}, {0x587, 0x587}, {0x1E96, 0x1E9E}, {0x1F50, 0x1FFF}, {0xFB00, 0xFB17}};
  const bool is_odd = upper
                          ? std::any_of(std::begin(kSeveral), std::end(kSeveral),
                                        [&](const auto& range) { return code >= range.first && code <= range.second; })
                          : code == 0x130 || code == 0x3A3;
  if (is_odd) return std::nullopt;
  const auto as_is = static_cast<utf8proc_int32_t>(code);
  return static_cast<char32_t>(upper ? utf8proc_toupper(as_is) : utf8proc_tolower(as_is));
}

}  // namespace

absl::StatusOr<std::string> in_case(std::string_view text, Case wanted) {
  std::string result;
  result.reserve(text.size());
  bool begins = true;  // a word
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    const auto changed = cased(code, wanted == Case::kUpper || (wanted != Case::kLower && begins));
    if (!changed)
      return unimplemented("upper and lower case of a character with several forms (U+", absl::Hex(code),
                           ") is not supported");
    append_utf8(result, *changed);
    const bool is_separator =
        is_space(code) ||
        (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) != std::string_view::npos);
    begins = wanted == Case::kTitle && is_separator;
  }
  return result;
}

}  // namespace bascule::ref::jinja
