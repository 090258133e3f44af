#include <bascule/transport/program/output.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/files.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/program/signals.h>

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

// Stdout is `fd` as long as this lives.
class StdoutIs {
 public:
  explicit StdoutIs(int fd) : before_(::dup(STDOUT_FILENO)) { ::dup2(fd, STDOUT_FILENO); }
  ~StdoutIs() { ::dup2(before_.get(), STDOUT_FILENO); }

 private:
  UniqueFd before_;
};

absl::Status print_to(const char* file, std::string_view text) {
  const UniqueFd fd(::open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const StdoutIs there(fd.get());
  return print(text);
}

TEST(Print, WritesAllOfIt) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "out").string();
  ASSERT_THAT(print_to(file.c_str(), "all of it\n"), IsOk());
  EXPECT_EQ(read_file(file, 100).value_or(""), "all of it\n");
}

TEST(Print, SaysThatTheDiskIsFull) {
  EXPECT_THAT(print_to("/dev/full", "text"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("write to stdout: No space left on device")));
}

TEST(Print, AReaderThatIsGoneIsNoError) {
  let_writes_fail();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  const UniqueFd writing(ends[1]);
  const StdoutIs there(writing.get());
  EXPECT_THAT(print("text"), IsOk());
}

TEST(WriteOutput, SaysThatAFileWouldBeTooLarge) {
  let_writes_fail();
  const test::TempFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 4, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = write_output(folder.path() / "file", "more than four bytes");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(std::string(written.message()), HasSubstr("File too large"));
}

TEST(WriteOutput, ReplacesAFileAndWritesIntoADevice) {
  const test::TempFolder folder;
  const std::filesystem::path file = folder.path() / "file", link = folder.path() / "link";
  ASSERT_THAT(write_output(file, "old"), IsOk());
  std::filesystem::create_symlink(file, link);
  ASSERT_THAT(write_output(link, "new"), IsOk());
  EXPECT_EQ(read_file(file, 100).value_or(""), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(write_output("/dev/null", "text"), IsOk());
  EXPECT_THAT(write_output("/dev/full", "text"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("write /dev/full: No space left on device")));
  struct stat status {};
  ASSERT_EQ(::stat("/dev/full", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode)) << "it is still a device";
}

TEST(CheckOutput, SaysBeforeTheWorkWhetherAFileCanBeWritten) {
  const test::TempFolder folder;
  EXPECT_THAT(check_output(folder.path() / "file"), IsOk());
  EXPECT_THAT(check_output("/dev/stdout"), IsOk());
  EXPECT_THAT(check_output(folder.path()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a folder")));
  EXPECT_THAT(check_output(folder.path() / "none" / "file"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("No such file")));
}

}  // namespace
}  // namespace bascule
