#include <bascule/trainer_ref/text/unicode.h>

#include "support.h"
#include <bascule/trainer_ref/text/byte_level.h>
#include <bascule/transport/utf8.h>

namespace bascule::ref {
namespace {

TEST(Unicode, TakesCharactersApartAndPutsThemTogether) {
  for (const char32_t character :
       {U'\0', U'a', U'\u007f', U'\u0080', U'é', U'\u07ff', U'\u0800', U'日', U'\uffff', U'😀'}) {
    std::string text;
    append_character(text, character);
    EXPECT_EQ(text.size(), character_bytes(text.front()));
    EXPECT_EQ(first_character(text + "z"), character);
    EXPECT_EQ(last_character_at("z" + text), 1u);
  }
}

TEST(Unicode, HasFourNormalForms) {
  EXPECT_EQ(normalized("e\u0301 ﬁ", NormalForm::kNfc), "é ﬁ");
  EXPECT_EQ(normalized("é ﬁ", NormalForm::kNfd), "e\u0301 ﬁ");
  EXPECT_EQ(normalized("e\u0301 ﬁ", NormalForm::kNfkc), "é fi");
  EXPECT_EQ(normalized("é ﬁ", NormalForm::kNfkd), "e\u0301 fi");
  EXPECT_EQ(normalized("\u1100\u1161\u11a8", NormalForm::kNfc), "각");
  const std::string with_nul("e\0\u0301", 4);
  EXPECT_EQ(normalized(with_nul, NormalForm::kNfc), with_nul);
}

TEST(Unicode, RepairsEachBeginningThatIsNotContinued) {
  // The examples of the Unicode Standard, tables 3-8 to 3-11.
  EXPECT_EQ(repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(repaired("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(Unicode, FindsWhereACharacterIsCut) {
  const std::string text = "aé日😀";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::size_t whole = utf8_prefix(std::string_view(text).substr(0, size));
    EXPECT_TRUE(is_utf8(text.substr(0, whole)));
    EXPECT_LT(size - whole, character_bytes(text[std::min(whole, text.size() - 1)]));
  }
  EXPECT_EQ(utf8_prefix("a\x80\x80"), 3u) << "bytes that begin no character are not waited for";
  EXPECT_EQ(utf8_prefix("a\xF5\x80"), 3u);
  EXPECT_EQ(utf8_prefix("a\xE2\x28"), 3u);
}

TEST(ByteLevel, HasOneCharacterForEachByte) {
  std::string all, characters;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  append_byte_level(characters, all);
  EXPECT_EQ(bytes_of_token(characters), all);
  EXPECT_TRUE(is_utf8(characters));
  std::string space;
  append_byte_level(space, " \n");
  EXPECT_EQ(space, "ĠĊ");
  EXPECT_EQ(bytes_of_token("Ġ日"), "Ġ日") << "a token with another character is its own text";
}

}  // namespace
}  // namespace bascule::ref
