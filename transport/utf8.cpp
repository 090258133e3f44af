#include <bascule/transport/utf8.h>

#include <cstddef>
#include <cstdint>

namespace bascule::inline v0 {

bool is_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<std::uint8_t>(text[i++]);
    if (lead < 0x80) continue;
    // How many bytes follow, and the smallest code point that needs that many (a smaller one is overlong).
    int following = 0;
    std::uint32_t smallest = 0;
    std::uint32_t code = 0;
    if ((lead & 0xE0) == 0xC0) {
      following = 1, smallest = 0x80, code = lead & 0x1Fu;
    } else if ((lead & 0xF0) == 0xE0) {
      following = 2, smallest = 0x800, code = lead & 0x0Fu;
    } else if ((lead & 0xF8) == 0xF0) {
      following = 3, smallest = 0x10000, code = lead & 0x07u;
    } else {
      return false;
    }
    for (; following > 0; --following) {
      if (i == text.size()) return false;
      const auto next = static_cast<std::uint8_t>(text[i++]);
      if ((next & 0xC0) != 0x80) return false;
      code = (code << 6) | (next & 0x3Fu);
    }
    if (code < smallest || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
  }
  return true;
}

std::string shortened(std::string_view text, std::size_t most) {
  constexpr std::string_view kCut = "…";
  if (text.size() <= most) return std::string(text);
  std::size_t kept = most - kCut.size();
  while (kept > 0 && (static_cast<std::uint8_t>(text[kept]) & 0xC0) == 0x80) --kept;  // inside a character
  return std::string(text.substr(0, kept)).append(kCut);
}

}  // namespace bascule::inline v0
