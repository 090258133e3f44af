#include <bascule/transport/posix/private_folder.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/environment.h"
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

// A user who followed advice to take such a folder would break the machine.
TEST_F(PrivateFolder, ThatIsSharedIsNotTakenFromOthers) {
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  const auto advice = [](const std::string& example) {
    return StatusIs(
        StatusCode::kPermissionDenied,
        AllOf(EndsWith("give a folder that is used for this alone, as " + example), testing::Not(HasSubstr("chmod"))));
  };
  EXPECT_THAT(make_private_folder(folder_), advice((folder_ / "run").string()));
  EXPECT_THAT(open_private_folder(folder_, "shm:///tmp/run"), advice("shm:///tmp/run"));
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  std::ofstream(folder_ / "notes.txt").put('x');  // like root's /usr
  EXPECT_THAT(make_private_folder(folder_), advice((folder_ / "run").string()));
  std::ofstream(folder_ / "sender.lock").put('x');
  EXPECT_THAT(make_private_folder(folder_), StatusIs(StatusCode::kPermissionDenied, HasSubstr("run: chmod 700")));
  if (::geteuid() != 0) return;
  std::ofstream(folder_ / "another's").put('x');
  ASSERT_EQ(::chown((folder_ / "another's").c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(make_private_folder(folder_), advice((folder_ / "run").string()));
}

// It would fill with slots and locks, and cleaning it up would remove the endpoint.
TEST_F(PrivateFolder, ThatIsThereForSomethingElseIsRefused) {
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  std::ofstream(folder_ / "config.json").put('x');
  EXPECT_THAT(make_private_folder(folder_), IsOk()) << "a checkpoint may lie beside the slots";
  const auto refused = [](const std::string& as, const std::string& example) {
    return StatusIs(StatusCode::kInvalidArgument,
                    AllOf(HasSubstr(" is " + as + "; give a folder"), EndsWith("alone, as " + example)));
  };
  const std::filesystem::path link = temp_.path() / "link";
  std::filesystem::create_symlink(folder_, link);
  for (const std::filesystem::path& name : {folder_, link, folder_ / ""}) {
    const test::Environment home("HOME", name.c_str());
    EXPECT_THAT(make_private_folder(folder_), refused("your home folder", (folder_ / "run").string()));
    EXPECT_THAT(open_private_folder(folder_, "shm:///a/run"), refused("your home folder", "shm:///a/run"));
    EXPECT_THAT(open_private_folder(folder_), refused("your home folder", (folder_ / "run").string()));
    EXPECT_THAT(make_private_folder(folder_ / "run"), IsOk());
  }
  const test::Environment session("XDG_RUNTIME_DIR", folder_.c_str());
  EXPECT_THAT(make_private_folder(folder_),
              refused("the folder of your whole session (XDG_RUNTIME_DIR)", (folder_ / "run").string()));
}

TEST_F(PrivateFolder, RightBelowTheRootIsTakenWhereItIsAnEndpointOrMayBecomeOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder there";
  std::string name = "/bascule-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::filesystem::path top = name;
  const auto is_the_systems = StatusIs(
      StatusCode::kInvalidArgument,
      HasSubstr(name + " is a folder of the whole system; give a folder that is used for this alone, as " + name));
  EXPECT_THAT(make_private_folder(top), IsOk()) << "new, and empty";
  EXPECT_EQ(::chmod(top.c_str(), 0755), 0);
  EXPECT_THAT(make_private_folder(top), is_the_systems) << "as /srv: chmod 700 would be bad advice";
  EXPECT_EQ(::chmod(top.c_str(), 0700), 0);
  std::ofstream(top / "notes.txt").put('x');
  EXPECT_THAT(make_private_folder(top), is_the_systems);
  std::ofstream(top / "sender.lock").put('x');
  EXPECT_THAT(make_private_folder(top), IsOk());
  std::filesystem::remove_all(top);
}

TEST_F(PrivateFolder, IsRefusedWhereItBelongsToSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  ASSERT_EQ(::chown(folder_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(open_private_folder(folder_),
              StatusIs(StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("belongs to uid 12345, expected 0"), HasSubstr("run both ends as one user"))));
}

TEST_F(PrivateFolder, IsNoFile) {
  std::ofstream(temp_.path() / "file") << "x";
  EXPECT_THAT(make_private_folder(temp_.path() / "file"),
              StatusIs(StatusCode::kInvalidArgument, EndsWith("file is not a folder")));
  EXPECT_THAT(make_private_folder(temp_.path() / "file" / "endpoint"),
              StatusIs(StatusCode::kInvalidArgument, EndsWith("file is not a folder")));
}

TEST_F(PrivateFolder, IsMissed) {
  EXPECT_THAT(open_private_folder(folder_), StatusIs(StatusCode::kNotFound, HasSubstr((temp_.path() / "a").string())));
  EXPECT_FALSE(std::filesystem::exists(temp_.path() / "a")) << "opening makes nothing";
}

TEST_F(PrivateFolder, IsOpenedOnlyAsWhatItIs) {
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  EXPECT_THAT(open_private_folder(folder_), IsOk());
  const std::filesystem::path link = temp_.path() / "link";
  std::filesystem::create_symlink(folder_, link);
  EXPECT_THAT(open_private_folder(link),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is a symbolic link; name the folder")));
  EXPECT_THAT(open_private_folder(temp_.path() / "gone"), StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
  ASSERT_EQ(::chmod(folder_.c_str(), 0711), 0);
  EXPECT_THAT(open_private_folder(folder_), StatusIs(StatusCode::kPermissionDenied, HasSubstr("chmod 700")));
}

// Refuses files that others could have put there, and files whose opening would block.
TEST_F(PrivateFolder, GivesFilesOfThisUserAlone) {
  ASSERT_THAT(make_private_folder(folder_), IsOk());
  std::ofstream(folder_ / "file") << "x";
  const UniqueFd fd = *open_private_folder(folder_);
  const auto opened = [&](const char* name) { return open_private_file(fd.get(), name, O_RDONLY, folder_).status(); };
  EXPECT_THAT(opened("file"), IsOk());
  EXPECT_THAT(opened("gone"), StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
  std::filesystem::create_symlink("file", folder_ / "link");
  EXPECT_THAT(opened("link"), StatusIs(StatusCode::kPermissionDenied, HasSubstr("link is a symbolic link")));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(opened("pipe"), StatusIs(StatusCode::kPermissionDenied, HasSubstr("pipe is not a file")));
  ASSERT_EQ(::chmod((folder_ / "file").c_str(), 0620), 0);
  EXPECT_THAT(opened("file"), StatusIs(StatusCode::kPermissionDenied, HasSubstr("file has mode 0620")));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chmod((folder_ / "file").c_str(), 0600), 0);
  ASSERT_EQ(::chown((folder_ / "file").c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(opened("file"), StatusIs(StatusCode::kPermissionDenied, HasSubstr("file belongs to uid 12345")));
}

// A link there could lead to the socket of another run of this user.
TEST_F(PrivateFolder, GivesSocketsOfThisUserAlone) {
  const UniqueFd fd = make_private_folder(folder_).value();
  const auto opened = [&](const char* name) { return open_private_socket(fd.get(), name, folder_).status(); };
  EXPECT_THAT(opened("gone"), StatusIs(StatusCode::kNotFound, HasSubstr("endpoint/gone")));
  ASSERT_EQ(::mknod((folder_ / "socket").c_str(), S_IFSOCK | 0600, 0), 0);
  EXPECT_THAT(opened("socket"), IsOk());
  std::filesystem::create_symlink("socket", folder_ / "link");
  EXPECT_THAT(opened("link"), StatusIs(StatusCode::kPermissionDenied, HasSubstr("link is a symbolic link")));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown((folder_ / "socket").c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(opened("socket"), StatusIs(StatusCode::kPermissionDenied, HasSubstr("socket belongs to uid 12345")));
}

// It leads to the open file, however long the file's path is and whatever that path names now.
TEST_F(PrivateFolder, IsReachedThroughItsDescriptor) {
  const std::filesystem::path deep = folder_ / std::string(200, 'x');
  const UniqueFd fd = make_private_folder(deep).value();
  std::filesystem::rename(deep, folder_ / "moved");
  const std::string path = path_through(fd.get(), "file").value();
  EXPECT_LE(path.size(), 40 + 4);
  std::ofstream(path) << "x";
  EXPECT_TRUE(std::filesystem::exists(folder_ / "moved" / "file"));
  EXPECT_THAT(path_through(1 << 20), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("expected /proc")));
}

}  // namespace
}  // namespace bascule
