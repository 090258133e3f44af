#include <bascule/transport/json.h>

#include <gmock/gmock.h>

#include <string>

#include "support/status.h"

namespace bascule {
namespace {

auto refused(const char* text) { return test::StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(text)); }

TEST(ParseJson, BoundsDepthBeforeItParses) {
  const std::string deepest = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_TRUE(parse_json(deepest, "x").ok());
  EXPECT_THAT(parse_json("[" + deepest + "]", "x"), refused("nests deeper than 64"));
  EXPECT_TRUE(parse_json(R"({"a": "[[[\"\\", "b": "]"})", "x").ok());
  const std::string brackets_in_a_string(1000, '[');
  EXPECT_TRUE(parse_json("\"" + brackets_in_a_string + "\"", "x").ok());
}

TEST(ParseJson, NamesAKeyThatStandsTwice) {
  EXPECT_TRUE(parse_json(R"([{"a": 1}, {"a": 2}])", "x").ok());
  EXPECT_THAT(parse_json(R"({"a": {"b": 1, "c": 2, "b": 3}})", "x"), refused("x: the key 'b' stands twice"));
}

TEST(ParseJson, SaysWhereTextIsMalformed) {
  EXPECT_THAT(parse_json(R"({"a": tru})", "file"), refused("file is not valid JSON"));
  EXPECT_THAT(parse_json("{\"a\": \"\xff\"}", "file"), refused("file is not valid"));
  EXPECT_THAT(parse_json("", "file"), refused("file is not valid JSON"));
}

}  // namespace
}  // namespace bascule
