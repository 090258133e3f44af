#include <bascule/transport/posix/folders.h>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr uid_t kSomebody = 12345;

bool is_same(int fd, const fs::path& path) {
  struct stat a {
  }, b{};
  return ::fstat(fd, &a) == 0 && ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

class Folders : public testing::Test {
 protected:
  Folders() { fs::create_directories(run_); }
  void expect_reached(const fs::path& path, const fs::path& folder) {
    SCOPED_TRACE(path);
    const absl::StatusOr<UniqueFd> reached = reach_folder(path, MissingFolders::kRefuse);
    ASSERT_THAT(reached, IsOk());
    EXPECT_TRUE(is_same(reached->get(), folder));
  }
  absl::Status refused(const fs::path& path, MissingFolders missing = MissingFolders::kRefuse) {
    return reach_folder(path, missing).status();
  }

  const test::TempFolder temp_;
  const fs::path run_ = temp_.path() / "a" / "run", link_ = temp_.path() / "link";
};

TEST_F(Folders, AreReachedOverLinksOfThisUserAndTheSystem) {
  expect_reached(run_, run_);
  expect_reached("/", "/");
  fs::create_directory_symlink("a", link_);
  fs::create_directory_symlink(temp_.path() / "a" / ".." / "link", temp_.path() / "twice");
  for (const char* const way : {"link/run", "link/run/", "link/./run", "link/../a/run", "twice/run", "a//run"})
    expect_reached(temp_.path() / way, run_);
  const fs::path here = fs::current_path();
  fs::current_path(temp_.path());
  expect_reached("link/run", run_);
  fs::current_path(here);
}

TEST_F(Folders, ThatAreLinksOrFilesAreRefused) {
  fs::create_directory_symlink(run_, link_);
  std::ofstream(run_ / "file") << "x";
  for (const MissingFolders missing : {MissingFolders::kRefuse, MissingFolders::kMake}) {
    EXPECT_THAT(refused(link_, missing),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("link is a symbolic link; name the folder")));
    EXPECT_THAT(refused(link_ / "", missing), StatusIs(StatusCode::kInvalidArgument, HasSubstr("symbolic link")));
    EXPECT_THAT(refused(run_ / "file", missing), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not a folder")));
    EXPECT_THAT(refused(run_ / "file" / "x", missing),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("file is not a folder")));
  }
}

TEST_F(Folders, BelowALinkOfAnotherUserAreRefusedAndNothingIsMadeThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a link away";
  fs::create_directory_symlink("a", link_);
  ASSERT_EQ(::lchown(link_.c_str(), kSomebody, static_cast<gid_t>(-1)), 0);
  fs::create_directory_symlink("link", temp_.path() / "mine");
  for (const char* const way : {"link/run", "mine/run", "link/new", "link/../a/run"})
    for (const MissingFolders missing : {MissingFolders::kRefuse, MissingFolders::kMake})
      EXPECT_THAT(
          refused(temp_.path() / way, missing),
          StatusIs(StatusCode::kPermissionDenied, AllOf(HasSubstr("link is a symbolic link of uid 12345, expected 0"),
                                                        HasSubstr("name the folder that it stands for"))));
  EXPECT_FALSE(fs::exists(temp_.path() / "a" / "new"));
}

TEST_F(Folders, BehindLinksWithoutAnEndAreRefused) {
  fs::create_directory_symlink("link", link_);
  EXPECT_THAT(refused(link_ / "run").ToString(), HasSubstr("Too many levels of symbolic links"));
}

TEST_F(Folders, AreMadeWithParentsThatOthersCannotEnter) {
  const mode_t umask = ::umask(0);
  const fs::path made = temp_.path() / "new" / "er" / "run";
  EXPECT_THAT(reach_folder(made, MissingFolders::kMake), IsOk());
  ::umask(umask);
  EXPECT_EQ(fs::status(made).permissions(), fs::perms(0700));
  EXPECT_EQ(fs::status(made.parent_path()).permissions(), fs::perms(0700));
  EXPECT_THAT(refused(temp_.path() / "none"), StatusIs(StatusCode::kNotFound, HasSubstr("none")));
}

TEST_F(Folders, ListTheirNames) {
  const UniqueFd fd = reach_folder(run_, MissingFolders::kRefuse).value();
  EXPECT_THAT(*names_in(fd.get()), UnorderedElementsAre());
  for (const char* const name : {"x", "y", ".z"}) std::ofstream(run_ / name) << "x";
  EXPECT_THAT(*names_in(fd.get()), UnorderedElementsAre("x", "y", ".z"));
  EXPECT_EQ(names_in(fd.get(), 2)->size(), 2U);
}

}  // namespace
}  // namespace bascule
