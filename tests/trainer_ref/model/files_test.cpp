#include "trainer_ref/model/files.h"

#include "support.h"

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

}  // namespace
}  // namespace bascule::ref
