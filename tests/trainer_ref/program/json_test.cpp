#include "trainer_ref/program/json.h"

#include <gmock/gmock.h>

#include <string>

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

TEST(ParseJson, ReadsWhatIsJson) {
  const absl::StatusOr<nlohmann::json> value = parse_json(R"({"a": [1, 2.5, null]})");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][1], 2.5);
}

TEST(ParseJson, SaysWhereItStopsBeingJson) {
  EXPECT_THAT(parse_json("{\"a\": }").status().message(), HasSubstr("column 7"));
  EXPECT_THAT(parse_json("").status().message(), HasSubstr("not JSON"));
  EXPECT_THAT(parse_json("\"\xff\"").status().message(), HasSubstr("UTF-8"));
}

TEST(ParseJson, RefusesDeepNestingBeforeAnybodyRecurses) {
  const std::string deep = std::string(1 << 20, '[');
  EXPECT_THAT(parse_json(deep).status().message(), HasSubstr("deeper than 32 levels"));
  EXPECT_TRUE(parse_json(std::string(30, '[') + std::string(30, ']')).ok());
}

}  // namespace
}  // namespace bascule::ref
