#include "trainer_ref/model/files.h"

#include "support.h"
#include "trainer_ref/model/json.h"

namespace bascule::ref {
namespace {

TEST(AtomicFile, ReplacesAFileOnlyAtCommit) {
  const TemporaryFolder folder;
  folder.write("file", "old");
  auto file = AtomicFile::create(folder.path() / "file");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->append("new ").ok());
  ASSERT_TRUE(file->append("text").ok());
  EXPECT_EQ(*read_file(folder.path() / "file", 100), "old");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(*read_file(folder.path() / "file", 100), "new text");
}

TEST(AtomicFile, LeavesNothingWhenDropped) {
  const TemporaryFolder folder;
  { ASSERT_TRUE(AtomicFile::create(folder.path() / "file")->append("text").ok()); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ReadFile, RefusesWhatIsMissingOrTooLong) {
  const TemporaryFolder folder;
  folder.write("file", std::string(200'000, 'x'));
  EXPECT_EQ(read_file(folder.path() / "file", 200'000)->size(), 200'000u);
  expect_error(read_file(folder.path() / "file", 199'999).status(), absl::StatusCode::kInvalidArgument, "199999");
  expect_error(read_file(folder.path() / "none", 1).status(), absl::StatusCode::kNotFound, "none: no such file");
}

TEST(ParseJson, BoundsDepthBeforeItParses) {
  const std::string deepest = std::string(kMaxCheckpointJsonDepth, '[') + std::string(kMaxCheckpointJsonDepth, ']');
  EXPECT_TRUE(parse_json(deepest, "x").ok());
  expect_error(parse_json("[" + deepest + "]", "x").status(), absl::StatusCode::kInvalidArgument,
               "nests deeper than 64");
  EXPECT_TRUE(parse_json(R"({"a": "[[[\"\\", "b": "]"})", "x").ok());
  const std::string brackets_in_a_string(1000, '[');
  EXPECT_TRUE(parse_json("\"" + brackets_in_a_string + "\"", "x").ok());
}

TEST(ParseJson, NamesAKeyThatStandsTwice) {
  EXPECT_TRUE(parse_json(R"([{"a": 1}, {"a": 2}])", "x").ok());
  expect_error(parse_json(R"({"a": {"b": 1, "c": 2, "b": 3}})", "x").status(), absl::StatusCode::kInvalidArgument,
               "x: the key 'b' stands twice");
}

TEST(ParseJson, SaysWhereTextIsMalformed) {
  expect_error(parse_json(R"({"a": tru})", "file").status(), absl::StatusCode::kInvalidArgument,
               "file is not valid JSON");
  expect_error(parse_json("{\"a\": \"\xff\"}", "file").status(), absl::StatusCode::kInvalidArgument,
               "file is not valid");
  expect_error(parse_json("", "file").status(), absl::StatusCode::kInvalidArgument, "file is not valid JSON");
}

}  // namespace
}  // namespace bascule::ref
