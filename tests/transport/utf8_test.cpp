#include <bascule/transport/utf8.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace bascule {
namespace {

// RFC 3629's bytes of a code point, in the given number of bytes (more than necessary: overlong).
std::string encoded(std::uint32_t code, int bytes) {
  if (bytes == 1) return {static_cast<char>(code)};
  constexpr std::uint8_t kLeads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  std::string text(1, static_cast<char>(kLeads[bytes] | (code >> (6 * (bytes - 1)))));
  for (int i = bytes - 2; i >= 0; --i) text += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
  return text;
}

int shortest(std::uint32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

TEST(Utf8, TakesEveryCodePointButSurrogates) {
  for (std::uint32_t code = 0; code <= 0x10FFFF; ++code) {
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(is_utf8(encoded(code, shortest(code))), !surrogate) << std::hex << code;
  }
}

TEST(Utf8, RefusesOverlongForms) {
  for (const std::uint32_t code : {0x00u, 0x2Fu, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu})
    for (int bytes = shortest(code) + 1; bytes <= 4; ++bytes)
      EXPECT_FALSE(is_utf8(encoded(code, bytes))) << std::hex << code << " in " << bytes;
}

TEST(Utf8, RefusesWhatLiesBeyondUnicode) {
  EXPECT_FALSE(is_utf8(encoded(0x110000, 4)));
  EXPECT_FALSE(is_utf8("\xF7\xBF\xBF\xBF"));
  EXPECT_FALSE(is_utf8("\xF8\x88\x80\x80\x80"));
  EXPECT_FALSE(is_utf8("\xFF"));
}

TEST(Utf8, RefusesATailThatIsMissingOrAlone) {
  for (const std::uint32_t code : {0xE9u, 0x20ACu, 0x1F309u}) {
    const std::string whole = encoded(code, shortest(code));
    for (std::size_t size = 1; size < whole.size(); ++size) {
      EXPECT_FALSE(is_utf8(whole.substr(0, size)));
      EXPECT_FALSE(is_utf8(whole.substr(0, size) + "a"));
    }
    EXPECT_FALSE(is_utf8(whole.substr(1)));
    EXPECT_TRUE(is_utf8("a" + whole + "b" + whole));
  }
}

TEST(Utf8, KnowsTextThatCouldHarmATerminalOrALog) {
  for (const char* const text : {"", "engine-0", "é €\U0001F309", "a b"}) {
    EXPECT_TRUE(is_printable(text)) << text;
    EXPECT_EQ(printable(text), text);
  }
  for (const auto& [text, shown] : {std::pair("\x1b[2J", "\\x1b[2J"),
                                    {"a\rb", "a\\x0db"},
                                    {"\x7f", "\\x7f"},
                                    {"\u009b2J", "\\xc2\\x9b2J"},
                                    {"\u202Eb", "\\xe2\\x80\\xaeb"},
                                    {"a\xff", "a\\xff"},
                                    {"\xe2\x1b", "\\xe2\\x1b"}}) {
    EXPECT_FALSE(is_printable(text)) << shown;
    EXPECT_EQ(printable(text), shown);
  }
  EXPECT_FALSE(is_printable("two\nlines"));
  EXPECT_EQ(printable("two\nlines\t"), "two\nlines\t");
}

TEST(Utf8, ShortensATextByWholeCharacters) {
  const std::string text = "ab\u20accd";
  EXPECT_EQ(shortened(text, 7), text);
  EXPECT_EQ(shortened(text, 6), "ab\u2026") << "the character of three bytes does not fit";
  EXPECT_EQ(shortened(text, 5), "ab\u2026");
  EXPECT_EQ(shortened(text + "efg", 8), "ab\u20ac\u2026");
  EXPECT_EQ(shortened(text, 3), "\u2026");
}

TEST(Utf8, TakesTheEmptyTextAndNul) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace bascule
