#include <bascule/trainer_ref/chat/unicode.h>

#include <algorithm>

#include <bascule/trainer_ref/chat/unicode_tables.h>

namespace bascule::ref::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;

std::size_t length_by_lead(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte >> 5 == 0x6 ? 2 : byte >> 4 == 0xE ? 3 : byte >> 3 == 0x1E ? 4 : 0;
}

void append_mapped(std::string& text, char32_t code, const std::vector<CaseRun>& runs,
                   const std::vector<CaseText>& texts) {
  const auto several = std::lower_bound(texts.begin(), texts.end(), code,
                                        [](const CaseText& row, char32_t c) { return row.code_point < c; });
  if (several != texts.end() && several->code_point == code) {
    text += several->text;
    return;
  }
  const auto run =
      std::lower_bound(runs.begin(), runs.end(), code, [](const CaseRun& row, char32_t c) { return row.last < c; });
  const bool found =
      run != runs.end() && run->first <= code && (code - run->first) % static_cast<char32_t>(run->step) == 0;
  append_utf8(text, found ? static_cast<char32_t>(static_cast<std::int64_t>(code) + run->distance) : code);
}

bool is_in(const std::vector<CodePointRange>& ranges, char32_t c) {
  const auto range = std::lower_bound(ranges.begin(), ranges.end(), c,
                                      [](const CodePointRange& row, char32_t code) { return row.last < code; });
  return range != ranges.end() && range->first <= c;
}

char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

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
    constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};  // by length: shorter ones would do for less
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

bool is_printable(char32_t c) { return c < 0x80 ? c >= 0x20 && c != 0x7F : !is_in(unprintable(), c); }

bool has_foreign_digit(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c >= 0x80 && is_in(decimal_digits(), c)) return true;
  }
  return false;
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

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    const bool ends = (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string upper(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      result += ascii_upper(text[at++]);
    } else {
      append_mapped(result, next_code_point(text, at), upper_runs(), upper_texts());
    }
  }
  return result;
}

std::string lower(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      result += ascii_lower(text[at++]);
    } else {
      append_mapped(result, next_code_point(text, at), lower_runs(), lower_texts());
    }
  }
  return result;
}

std::string title_first(std::string_view text) {
  if (text.empty()) return "";
  std::size_t at = 0;
  const char32_t first = next_code_point(text, at);
  std::string result;
  if (first < 0x80) {
    result += ascii_upper(static_cast<char>(first));
  } else {
    append_mapped(result, first, title_runs(), title_texts());
  }
  return result.append(text.substr(at));
}

bool has_capital_sigma(std::string_view text) {
  if (is_ascii(text)) return false;
  for (std::size_t at = 0; at < text.size();) {
    if (next_code_point(text, at) == kCapitalSigma) return true;
  }
  return false;
}

}  // namespace bascule::ref::jinja
