#include <bascule/trainer_ref/text/byte_level.h>

#include <array>
#include <cstdint>

#include <bascule/trainer_ref/text/unicode.h>

namespace bascule::ref {
namespace {

constexpr unsigned kFirstOther = 0x100, kOthers = 68;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

struct Map {
  std::array<std::array<char, 2>, 256> text{};  // UTF-8; one byte if the first is ASCII
  std::array<std::int16_t, kFirstOther + kOthers> byte{};

  constexpr Map() {
    byte.fill(-1);
    unsigned next = kFirstOther;
    for (unsigned i = 0; i < 256; ++i) {
      const unsigned character = stands_for_itself(i) ? i : next++;
      byte[character] = static_cast<std::int16_t>(i);
      text[i] = character < 0x80 ? std::array<char, 2>{static_cast<char>(character), 0}
                                 : std::array<char, 2>{static_cast<char>(0xC0 | character >> 6),
                                                       static_cast<char>(0x80 | (character & 0x3F))};
    }
  }
};
constexpr Map kMap;

}  // namespace

void append_byte_level(std::string& out, std::string_view text) {
  const std::size_t before = out.size();
  out.resize(before + 2 * text.size());
  char* end = out.data() + before;
  for (const char c : text) {
    const auto& character = kMap.text[static_cast<unsigned char>(c)];
    end[0] = character[0];
    end[1] = character[1];
    end += character[1] == 0 ? 1 : 2;
  }
  out.resize(static_cast<std::size_t>(end - out.data()));
}

std::optional<char> byte_of(char32_t character) {
  if (character >= kMap.byte.size() || kMap.byte[character] < 0) return std::nullopt;
  return static_cast<char>(kMap.byte[character]);
}

std::string bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty(); rest.remove_prefix(character_bytes(rest.front()))) {
    const std::optional<char> byte = byte_of(first_character(rest));
    if (!byte) return std::string(token);
    bytes += *byte;
  }
  return bytes;
}

}  // namespace bascule::ref
