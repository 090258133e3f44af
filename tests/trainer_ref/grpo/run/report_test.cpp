#include <bascule/trainer_ref/grpo/run/report.h>

#include <gmock/gmock.h>

#include "support/page.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>

namespace bascule::ref {
namespace {

using test::IsOk;
using testing::HasSubstr;
using testing::Not;

class Report : public testing::Test {
 protected:
  std::string page(const std::string& about = "a run") {
    EXPECT_THAT(write_file(folder_.path() / "run.json", "{\"about\": \"" + about + "\"}"), IsOk());
    EXPECT_THAT(write_file(folder_.path() / "metrics.jsonl", "{\"step\": 0}\n"), IsOk());
    EXPECT_THAT(write_report(folder_.path()), IsOk());
    return read_file(folder_.path() / "report.html", 1 << 20).value_or("");
  }
  test::TempFolder folder_;
};

TEST_F(Report, HoldsTheRunAndAsksForNothingElse) {
  const std::string text = page("</script>");
  EXPECT_THAT(text, HasSubstr(R"("about":"\u003c/script>")"));
  for (const char* reference : {"src=", "href=", "@import", "url(", "fetch("})
    EXPECT_THAT(text, Not(HasSubstr(reference))) << reference;
}

TEST_F(Report, ItsTextIsReadableInBothModes) {
  for (const bool dark : {false, true}) {
    const auto colours = test::colours_of(page(), dark);
    for (const auto& [text, ground] : std::vector<std::pair<std::string, std::string>>{{"ink", "page"},
                                                                                       {"ink", "card"},
                                                                                       {"soft", "page"},
                                                                                       {"soft", "card"},
                                                                                       {"teal", "page"},
                                                                                       {"card", "ink"},
                                                                                       {"good", "good-wash"},
                                                                                       {"bad", "bad-wash"}})
      EXPECT_GE(test::contrast(colours.at(text), colours.at(ground)), 4.5) << text << " on " << ground << ", " << dark;
    for (const char* line : {"blue", "teal", "amber", "violet", "grey"})
      EXPECT_GE(test::contrast(colours.at(line), colours.at("card")), 3) << line << ", " << dark;
  }
}

TEST_F(Report, SaysInWordsWhatItsPicturesShow) {
  const std::string text = page();
  EXPECT_EQ(test::count(text, "<th "), test::count(text, "<th scope=")) << "each heading has a scope";
  EXPECT_EQ(test::count(text, "<th>"), 0);
  EXPECT_EQ(test::count(text, "<svg"), test::count(text, "role=\"img\" aria-labelledby="))
      << "a title for each picture";
  EXPECT_THAT(text, HasSubstr("<desc id="));
  EXPECT_THAT(text, HasSubstr("createElement(\"details\")"));
  EXPECT_EQ(test::count(text, "viewBox=\"0 0 ${width} ${height}\""), test::count(text, "viewBox="))
      << "one unit per pixel: text keeps its size on a phone";
}

TEST_F(Report, NamesTheLinesOfChartsThatHaveSeveral) {
  for (const char* chart : {"held", "flat", "each", "speed", "lag", "stragglers"})
    EXPECT_THAT(page(), HasSubstr(std::string("<div class=\"legend\" id=\"") + chart + "-legend\"></div>"));
}

// A list of 130,000 steps has more elements than a call may have arguments.
TEST_F(Report, SpreadsNoListIntoACall) {
  const std::string text = page();
  for (const std::string call : {"Math.min(", "Math.max("})
    for (std::size_t at = text.find(call); at != text.npos; at = text.find(call, at + 1))
      EXPECT_THAT(text.substr(at, text.find('\n', at) - at), Not(HasSubstr("..."))) << "from " << call;
}

TEST_F(Report, ColoursCompletionsByTheirRewards) {
  const std::string text = page();
  for (const char* key : {"sampled_rewards", "greedy_rewards"}) EXPECT_THAT(text, HasSubstr(key));
}

}  // namespace
}  // namespace bascule::ref
