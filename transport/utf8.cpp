#include <bascule/transport/utf8.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/str_replace.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::uint32_t kNotUtf8 = 0xFFFFFFFF;

// Returns the code point that begins at `i`, and moves `i` past it; or kNotUtf8, and moves `i` by a byte.
std::uint32_t next_code(std::string_view text, std::size_t& i) {
  const auto lead = static_cast<std::uint8_t>(text[i++]);
  if (lead < 0x80) return lead;
  // How many bytes follow, and the smallest code point that needs that many (a smaller one is overlong).
  std::size_t following = 0;
  std::uint32_t smallest = 0;
  std::uint32_t code = 0;
  if ((lead & 0xE0) == 0xC0) {
    following = 1, smallest = 0x80, code = lead & 0x1Fu;
  } else if ((lead & 0xF0) == 0xE0) {
    following = 2, smallest = 0x800, code = lead & 0x0Fu;
  } else if ((lead & 0xF8) == 0xF0) {
    following = 3, smallest = 0x10000, code = lead & 0x07u;
  } else {
    return kNotUtf8;
  }
  if (text.size() - i < following) return kNotUtf8;
  for (const char byte : text.substr(i, following)) {
    const auto next = static_cast<std::uint8_t>(byte);
    if ((next & 0xC0) != 0x80) return kNotUtf8;
    code = (code << 6) | (next & 0x3Fu);
  }
  if (code < smallest || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return kNotUtf8;
  i += following;
  return code;
}

bool is_control(std::uint32_t code) {
  const auto between = [code](std::uint32_t first, std::uint32_t last) { return code >= first && code <= last; };
  return between(0, 0x1F) || between(0x7F, 0x9F) || between(0x200E, 0x200F) || between(0x2028, 0x202E) ||
         between(0x2066, 0x2069) || code == kNotUtf8;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();)
    if (next_code(text, i) == kNotUtf8) return false;
  return true;
}

bool is_printable(std::string_view text) {
  for (std::size_t i = 0; i < text.size();)
    if (is_control(next_code(text, i))) return false;
  return true;
}

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t from = i;
    const std::uint32_t code = next_code(text, i);
    const std::string_view bytes = text.substr(from, i - from);
    if (!is_control(code) || code == '\n' || code == '\t') {
      shown += bytes;
      continue;
    }
    for (const char byte : bytes) shown += cat("\\x", absl::Hex(static_cast<std::uint8_t>(byte), absl::kZeroPad2));
  }
  return shown;
}

absl::Status printable(const absl::Status& status) {
  if (status.ok() || is_printable(message_of(status))) return status;
  absl::Status shown(status.code(), printable(message_of(status)));
  status.ForEachPayload(
      [&shown](absl::string_view type, const absl::Cord& payload) { shown.SetPayload(type, payload); });
  return shown;
}

std::string one_line(std::string_view text) { return absl::StrReplaceAll(printable(text), {{"\n", "\\n"}}); }

std::string shortened(std::string_view text, std::size_t most) {
  constexpr std::string_view kCut = "…";
  if (text.size() <= most) return std::string(text);
  std::size_t kept = most - kCut.size();
  while (kept > 0 && (static_cast<std::uint8_t>(text[kept]) & 0xC0) == 0x80) --kept;  // inside a character
  return std::string(text.substr(0, kept)).append(kCut);
}

}  // namespace bascule::inline v0
