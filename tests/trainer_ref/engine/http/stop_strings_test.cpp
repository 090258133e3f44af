#include <bascule/trainer_ref/engine/http/stop_strings.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;

StopStrings stops(std::vector<std::string> strings, bool included = false) {
  return {std::make_shared<const std::vector<std::string>>(std::move(strings)), included};
}

std::vector<std::string> pushed(StopStrings& stop, const std::vector<std::string>& pieces) {
  std::vector<std::string> certain;
  for (const std::string& piece : pieces) certain.push_back(stop.push(piece));
  return certain;
}

TEST(StopStrings, HoldsBackWhatOneMayBeginWith) {
  StopStrings stop = stops({"END", "\n\n"});
  EXPECT_THAT(pushed(stop, {"a", "E", "N", "x", "\n", "b", "EEN"}), ElementsAre("a", "", "", "ENx", "", "\nb", "E"));
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.finish(), "EN") << "nothing follows";
}

TEST(StopStrings, EndTheTextBeforeOrBehindThemselves) {
  for (const bool included : {false, true}) {
    StopStrings stop = stops({"END"}, included);
    EXPECT_THAT(pushed(stop, {"xE", "ND and more", "more"}), ElementsAre("x", included ? "END" : "", ""));
    EXPECT_EQ(stop.found(), "END");
    EXPECT_EQ(stop.finish(), "");
  }
}

TEST(StopStrings, TheOneThatBeginsFirstEndsTheText) {
  StopStrings stop = stops({"cd", "bcde"});
  EXPECT_EQ(stop.push("abcdef"), "a");
  EXPECT_EQ(stop.found(), "bcde");
  StopStrings equal = stops({"bcd", "bc"});
  EXPECT_EQ(equal.push("abcdef"), "a");
  EXPECT_EQ(equal.found(), "bcd") << "the first in the list";
}

TEST(StopStrings, OnesThatRepeatThemselvesAreFound) {
  StopStrings stop = stops({"aab"});
  EXPECT_THAT(pushed(stop, {"a", "a", "a", "a", "b"}), ElementsAre("", "", "a", "a", ""));
  EXPECT_EQ(stop.found(), "aab");
}

TEST(StopStrings, WithoutAnyAllIsCertain) {
  StopStrings stop(nullptr, false);
  EXPECT_EQ(stop.push("END"), "END");
}

TEST(StopStrings, DoNotEndWithinATextThatIsPassed) {
  StopStrings stop = stops({"ab", "abcd"});
  EXPECT_EQ(stop.pass("xabcd"), "xabcd");
  EXPECT_EQ(stop.pass("ab"), "") << "the other may still come";
  EXPECT_EQ(stop.push("x"), "abx") << "the first has ended before";
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.push("yab"), "y");
  EXPECT_EQ(stop.found(), "ab");

  StopStrings begun = stops({"ab", "abcd"});
  EXPECT_EQ(begun.pass("xabc"), "x");
  EXPECT_EQ(begun.push("d"), "") << "it begins in what was passed, and ends after it";
  EXPECT_EQ(begun.found(), "abcd");
}

}  // namespace
}  // namespace bascule::ref
