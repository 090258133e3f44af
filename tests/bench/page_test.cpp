#include "bench/page.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "results.h"

namespace bascule::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

// What stands in the page's element of data.
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

}  // namespace
}  // namespace bascule::bench
