#include <bascule/bench/page.h>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "results.h"
#include "support/page.h"

namespace bascule::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

// The content of the page's data element.
std::string data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"results\">";
  const std::size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST(Page, HoldsTheResults) {
  const Results results = results_with({measured_record("send", {0.25}, {0.5})});
  const nlohmann::json data = nlohmann::json::parse(data_of(page_of(results)));
  EXPECT_EQ(data, nlohmann::json::parse(to_json(results)));
}

TEST(Page, TextCannotEndTheData) {
  Results results = results_with({measured_record("send", {0.25}, {0.5})});
  results.records.front().note = "</script><b>";
  const nlohmann::json data = nlohmann::json::parse(data_of(page_of(results)));
  EXPECT_EQ(data.at("records").at(0).at("note"), "</script><b>");
}

TEST(Page, AsksForNothingElse) {
  const std::string page = page_of(results_with({}));
  for (const char* reference : {"src=", "href=", "@import", "url(", "fetch("})
    EXPECT_THAT(page, Not(HasSubstr(reference))) << reference;
}

TEST(Page, ItsTextIsReadableInBothModes) {
  const std::string page = page_of(results_with({}));
  for (const bool dark : {false, true}) {
    const auto colours = test::colours_of(page, dark);
    for (const char* text : {"ink", "soft", "good", "bad"})
      for (const char* ground : {"card", "page"})
        EXPECT_GE(test::contrast(colours.at(text), colours.at(ground)), 4.5)
            << text << " on " << ground << ", " << dark;
    for (const char* bar : {"blue", "teal", "amber", "violet", "grey", "red", "olive", "brown"})
      EXPECT_GE(test::contrast(colours.at(bar), colours.at("card")), 3) << bar << ", " << dark;
  }
}

TEST(Page, SaysInWordsWhatItsPicturesShow) {
  const std::string page = page_of(results_with({}));
  EXPECT_GT(test::count(page, "<th scope="), 0);
  EXPECT_EQ(test::count(page, "<th "), test::count(page, "<th scope=")) << "each heading says of what";
  EXPECT_EQ(test::count(page, "<svg"), 1) << "all by picture(), which gives each a title and a text";
  EXPECT_THAT(page, HasSubstr("role=\"img\" aria-labelledby="));
  EXPECT_THAT(page, HasSubstr("viewBox=\"0 0 ${width} ${height}\""));
  EXPECT_THAT(page, Not(HasSubstr("Hover")));
}

}  // namespace
}  // namespace bascule::bench
