#include "transport/posix/private_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class PrivateFolder : public testing::Test {
 protected:
  test::TempFolder temp_;
  const std::filesystem::path folder_ = temp_.path() / "a" / "b" / "endpoint";
};

TEST_F(PrivateFolder, IsMadeWithItsParents) {
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_TRUE(S_ISDIR(status.st_mode));
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(status.st_uid, ::geteuid());
}

TEST_F(PrivateFolder, IsTakenAsItIs) {
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  std::ofstream(folder_ / "sender.lock") << "kept";
  EXPECT_THAT(make_private_folder(folder_), IsOk());
  EXPECT_THAT(check_private_folder(folder_), IsOk());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "sender.lock"));
}

TEST_F(PrivateFolder, IsRefusedWhereOthersCanEnter) {
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  for (const auto& [mode, text] : {std::pair(0755, "0755"), {0701, "0701"}, {0720, "0720"}, {0704, "0704"}}) {
    ASSERT_EQ(::chmod(folder_.c_str(), static_cast<mode_t>(mode)), 0);
    EXPECT_THAT(
        make_private_folder(folder_),
        StatusIs(StatusCode::kPermissionDenied, AllOf(HasSubstr(std::string("has mode ") + text + ", expected 0700"),
                                                      EndsWith("run: chmod 700 " + folder_.string()))));
  }
  EXPECT_EQ(std::filesystem::status(folder_).permissions(), std::filesystem::perms(0704)) << "mending it is the user's";
}

TEST_F(PrivateFolder, IsRefusedWhereItBelongsToSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  ASSERT_EQ(::chown(folder_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(check_private_folder(folder_),
              StatusIs(StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("belongs to uid 12345, expected 0"), HasSubstr("run both ends as one user"))));
}

TEST_F(PrivateFolder, IsNoFile) {
  std::ofstream(temp_.path() / "file") << "x";
  EXPECT_THAT(make_private_folder(temp_.path() / "file"),
              StatusIs(StatusCode::kInvalidArgument, EndsWith("file is not a folder")));
  EXPECT_THAT(make_private_folder(temp_.path() / "file" / "endpoint"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("make folder ")));
}

TEST_F(PrivateFolder, IsMissed) {
  EXPECT_THAT(check_private_folder(folder_), StatusIs(StatusCode::kNotFound, HasSubstr(folder_.string())));
  EXPECT_FALSE(std::filesystem::exists(temp_.path() / "a")) << "checking makes nothing";
}

}  // namespace
}  // namespace bascule
