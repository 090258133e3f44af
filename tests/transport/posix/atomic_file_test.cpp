#include <bascule/transport/posix/atomic_file.h>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/files.h>

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

TEST(AtomicFile, ReplacesAFileOnlyAtCommit) {
  const test::TempFolder folder;
  const std::filesystem::path path = folder.path() / "file";
  ASSERT_THAT(write_file(path, "old"), IsOk());
  auto file = AtomicFile::create(path);
  ASSERT_THAT(file, IsOk());
  file->reserve(8);
  ASSERT_THAT(file->append("new "), IsOk());
  ASSERT_THAT(file->append("text"), IsOk());
  EXPECT_EQ(read_file(path, 100).value_or(""), "old");
  ASSERT_THAT(file->commit(), IsOk());
  EXPECT_EQ(read_file(path, 100).value_or(""), "new text");
}

TEST(AtomicFile, LeavesNothingWhenDropped) {
  const test::TempFolder folder;
  { ASSERT_THAT(AtomicFile::create(folder.path() / "file")->append("text"), IsOk()); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(AtomicFile, WritesThroughNoLinkThatSomebodyLaidUnderItsTemporaryName) {
  const test::TempFolder folder;
  ASSERT_THAT(write_file(folder.path() / "theirs", "theirs"), IsOk());
  std::filesystem::create_symlink(folder.path() / "theirs", folder.path() / "file.new");
  EXPECT_THAT(AtomicFile::create(folder.path() / "file", 0600, ".new").status(), testing::Not(IsOk()));
  EXPECT_EQ(read_file(folder.path() / "theirs", 100).value_or(""), "theirs");
}

TEST(WriteFile, SaysWhichFileAndWhatTheSystemSaid) {
  const test::TempFolder folder;
  EXPECT_THAT(write_file(folder.path() / "none" / "file", "text"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none/file.tmp-")));
}

}  // namespace
}  // namespace bascule
