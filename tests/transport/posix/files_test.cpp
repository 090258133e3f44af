#include <bascule/transport/posix/files.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "support/mounted_folder.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

UniqueFd create(const std::filesystem::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

TEST(Files, ReadsUnderABound) {
  const test::TempFolder folder;
  const auto path = folder.path() / "file";
  ASSERT_THAT(replace_file(path, std::string(200'000, 'x')), IsOk());
  EXPECT_EQ(read_file(path, 200'000)->size(), 200'000u);
  EXPECT_THAT(read_file(path, 199'999), StatusIs(StatusCode::kInvalidArgument, HasSubstr("199999")));
  EXPECT_THAT(read_file(folder.path() / "none", 1), StatusIs(StatusCode::kNotFound, HasSubstr("none: no such file")));
}

TEST(Files, ReplacesAFileWhole) {
  const test::TempFolder folder;
  const auto path = folder.path() / "file";
  ASSERT_THAT(replace_file(path, "old"), IsOk());
  const UniqueFd reader(::open(path.c_str(), O_RDONLY));
  ASSERT_THAT(replace_file(path, "the new one"), IsOk());
  EXPECT_EQ(read_file(path, 100).value_or(""), "the new one");
  EXPECT_EQ(read_file(cat("/proc/self/fd/", reader.get()), 100).value_or(""), "old") << "who opened it reads on";
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "and leaves nothing else";
}

TEST(Files, LeavesTheOldOneWhereItCannotReplaceIt) {
  const test::TempFolder folder;
  const auto taken = folder.path() / "folder";
  std::filesystem::create_directory(taken);
  EXPECT_THAT(replace_file(taken, "text"), testing::Not(IsOk()));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "folder.new"));
  EXPECT_THAT(replace_file(folder.path() / "gone" / "file", "text"),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone/file.new")));
}

TEST(Files, AllocatesEveryByte) {
  const test::TempFolder folder;
  const auto path = folder.path() / "file";
  const UniqueFd fd = create(path);
  ASSERT_THAT(allocate_file(fd.get(), 1'000'001, path), IsOk());
  struct stat status {};
  ASSERT_EQ(::fstat(fd.get(), &status), 0);
  EXPECT_EQ(status.st_size, 1'000'001);
  EXPECT_GE(status.st_blocks * 512, 1'000'001) << "no holes";
  EXPECT_EQ(read_file(path, 2'000'000).value_or(""), std::string(1'000'001, '\0'));
}

TEST(Files, SaysHowMuchAFullDiskLacks) {
  const test::MountedFolder disk("tmpfs", "size=1m");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small tmpfs";
  const auto path = disk.path() / "file";
  EXPECT_THAT(allocate_file(create(path).get(), 2 << 20, path),
              StatusIs(StatusCode::kResourceExhausted, AllOf(HasSubstr("file needs 2097152 bytes, "),
                                                             HasSubstr(" are free"), HasSubstr("wire_dtype"))));
}

TEST(Files, RefusesMoreThanTheProcessMayWriteWithoutASignal) {
  const test::TempFolder folder;
  const auto path = folder.path() / "file";
  const UniqueFd fd = create(path);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit low { .rlim_cur = 1 << 20, .rlim_max = before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status refused = allocate_file(fd.get(), 2 << 20, path);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(refused, StatusIs(StatusCode::kResourceExhausted, HasSubstr("may write files of 1048576")));
}

TEST(Files, SyncsWhatIsThereAndNamesWhatIsNot) {
  const test::TempFolder folder;
  ASSERT_THAT(replace_file(folder.path() / "file", "text"), IsOk());
  EXPECT_THAT(sync_folder(folder.path()), IsOk());
  EXPECT_THAT(sync_folder(folder.path() / "none"), StatusIs(StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(sync_folder(folder.path() / "file"), testing::Not(IsOk()));
}

TEST(Files, KnowsFileSystemsThatAPowerCutEmpties) {
  const auto in_memory = [](const char* folder) {
    const UniqueFd fd(::open(folder, O_PATH | O_CLOEXEC));
    return is_in_memory(fd.get(), folder);
  };
  EXPECT_EQ(in_memory("/dev/shm").value_or(false), true);
  EXPECT_EQ(in_memory("/proc").value_or(true), false);
  EXPECT_THAT(in_memory("/nowhere").status().ToString(), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace bascule
