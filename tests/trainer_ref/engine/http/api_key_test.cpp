// The sources of the engine's key.
#include <bascule/trainer_ref/engine/http/api_key.h>

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "support/temp_folder.h"

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

std::string key_of(const KeyFlag& flag, const KeyFlag& file) {
  const absl::StatusOr<std::string> key = find_api_key(flag, file);
  return key.ok() ? *key : std::string(key.status().message());
}

TEST(ApiKey, ComesFromTheFlagTheFileOrTheVariable) {
  const test::TempFolder folder;
  const std::string file = folder.path() / "key";
  std::ofstream(file) << " sesame\nmore\n";
  EXPECT_EQ(key_of({}, {}), "");
  EXPECT_EQ(key_of({"open"}, {}), "open");
  EXPECT_EQ(key_of({}, {file}), "sesame");
  ::setenv("BASCULE_API_KEY", "shut", 1);
  EXPECT_EQ(key_of({}, {}), "shut");
  EXPECT_EQ(key_of({"open"}, {}), "open");
  ::setenv("BASCULE_API_KEY", "", 1);
  EXPECT_EQ(key_of({}, {}), "");
  ::unsetenv("BASCULE_API_KEY");
}

TEST(ApiKey, AFlagThatIsGivenEmptyOpensNothing) {
  KeyFlag given;
  std::string error;
  ASSERT_TRUE(AbslParseFlag("", &given, &error));
  EXPECT_THAT(key_of(given, {}), HasSubstr("--api-key=: give a key"));
  EXPECT_THAT(key_of({}, given), HasSubstr("--api-key-file=: give a file"));
  EXPECT_THAT(key_of(given, {"/dev/null"}), HasSubstr("--api-key is also given"));
  EXPECT_THAT(key_of({}, {"/dev/null"}), HasSubstr("expected a file whose first line"));
}

}  // namespace
}  // namespace bascule::ref
