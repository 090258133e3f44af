#include <bascule/trainer_ref/text/regex.h>

#include "support.h"
#include <bascule/trainer_ref/text/pattern.h>
#include <bascule/trainer_ref/text/regex_syntax.h>
#include <bascule/trainer_ref/text/unicode.h>

namespace bascule::ref {
namespace {

std::vector<std::string> matches(std::string_view expression, std::string_view text) {
  const auto pattern = Pattern::regex(expression);
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  std::vector<Segment> segments;
  if (!pattern.ok() || !pattern->find(text, {0, text.size()}, segments).ok()) return {"failed"};
  std::vector<std::string> found;
  for (const Segment& segment : segments) {
    if (segment.is_match) found.emplace_back(text.substr(segment.span.begin, segment.span.end - segment.span.begin));
  }
  return found;
}

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Regex, KnowsUnicode) {
  EXPECT_THAT(matches(R"(\p{L}+)", "día 日本 42"), ElementsAre("día", "日本"));
  EXPECT_THAT(matches(R"(\p{N}{1,3})", "12345 ½"), ElementsAre("123", "45", "½"));
  EXPECT_THAT(matches(R"((?i:'s|'ll))", "it'S he'LL 'ſ"), ElementsAre("'S", "'LL", "'ſ"));
  EXPECT_THAT(matches(R"(\p{Han}+)", "漢字、かな。"), ElementsAre("漢字")) << "not what scripts share";
}

TEST(Regex, MeansByClassesWhatOnigurumaMeans) {
  EXPECT_THAT(matches(R"(\s)", "a\u180Eb\u0085c\u3000d"), ElementsAre("\u0085", "\u3000"));
  EXPECT_THAT(matches(R"([^\s\p{L}]+)", "a\u180E!\u3000d"), ElementsAre("\u180E!"));
  EXPECT_THAT(matches(R"(\S+)", "a b"), ElementsAre("a", "b"));
  EXPECT_THAT(matches(R"(\w+)", "a\u0301_b²-c"), ElementsAre("a\u0301_b²", "c"));
  EXPECT_THAT(matches(R"(\s+(?!\S)|\s+)", "a   b  "), ElementsAre("  ", " ", "  "));
  EXPECT_THAT(matches(R"(\u00e9|\x41)", "éA"), ElementsAre("é", "A"));
}

// Counted with tokenizers 0.23.3, whose Unicode is newer: without the characters added after Unicode 14.
TEST(Regex, ClassesHaveOnigurumasMembers) {
  std::string all;
  for (std::uint32_t code = 1; code < 0x110000; ++code)
    if (code < 0xD800 || code > 0xDFFF) append_character(all, code);
  constexpr std::size_t kAll = 0x110000 - 1 - 2048;
  EXPECT_EQ(matches(R"(\w)", all).size(), 135206U);
  EXPECT_EQ(matches(R"(\W)", all).size(), kAll - 135206);
  EXPECT_EQ(matches(R"([\w])", all).size(), 135200U);
  EXPECT_EQ(matches(R"([^\w])", all).size(), kAll - 135200);
  EXPECT_EQ(matches(R"(\d)", all).size(), 660U);
  EXPECT_EQ(matches(R"(\s)", all).size(), 25U);
  EXPECT_THAT(matches(R"(\w+)", "a\u00BD \u2155 \u09F4 \u2160 \u0664"), ElementsAre("a\u00BD", "\u2160", "\u0664"));
  EXPECT_THAT(matches(R"([\w-]+)", "a\u00BD \u00B2 b-"), ElementsAre("a", "b-"));
}

TEST(Regex, FindsEmptyMatchesOnceAtEachPlace) {
  EXPECT_THAT(matches("x*", "axxé"), ElementsAre("", "xx", ""));
  EXPECT_THAT(matches("(?=b)", "abab"), ElementsAre("", ""));
  EXPECT_THAT(matches("x", ""), IsEmpty());
}

TEST(Regex, RefusesWhatPcre2ReadsOtherwise) {
  for (const char* expression :
       {R"(\h)", R"([a-z&&[^b]])", R"([[:alpha:]])", R"(a{1,3}+)", R"(a{,3})", R"((?m)a)", R"((?<name>a))", R"(\1)",
        R"(\bword)", R"([\S])", R"(\xE9)", R"([])", R"([a)", R"(\pL)", R"(a\)", R"((a)", R"(\p{NoScript})"}) {
    expect_error(Pattern::regex(expression).status(), absl::StatusCode::kUnimplemented, "the regular expression ");
  }
}

TEST(Regex, SearchesLongTextsOnTheHeapWhereTheStackIsTooSmall) {
  std::string text(200000, 'a');
  text.back() = 'b';
  EXPECT_THAT(matches("(?:a|c)+(?:b)", text), ElementsAre(text));
}

}  // namespace
}  // namespace bascule::ref
