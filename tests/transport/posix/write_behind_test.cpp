#include <bascule/transport/posix/write_behind.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "support/no_io_uring.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule {
namespace {

using test::IsOk;
using testing::HasSubstr;

constexpr std::size_t kFileBytes = std::size_t{40} << 20;  // several chunks

void write_and_sync(WriteBehind& behind, const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  behind.begin(fd.get());
  const std::vector<char> chunk(std::size_t{5} << 20, 'x');
  for (std::size_t at = 0; at < kFileBytes; at += chunk.size()) {
    ASSERT_EQ(::pwrite(fd.get(), chunk.data(), chunk.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(chunk.size()));
    behind.reached(at + chunk.size());
  }
  EXPECT_THAT(behind.finish(Deadline(test::patience())), IsOk());
}

TEST(WriteBehind, BringsFileAfterFileToTheDisk) {
  const test::TempFolder folder;
  WriteBehind behind;
  for (const char* name : {"a", "b", "c"}) write_and_sync(behind, folder.path() / name);
}

TEST(WriteBehind, HasNoMoreUnderWayThanItsRingHolds) {
  const test::TempFolder folder;
  const auto path = folder.path() / "file";
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  WriteBehind behind;
  behind.begin(fd.get());
  behind.reached(std::uint64_t{4} << 30);  // 512 chunks of a file without any
  EXPECT_THAT(behind.finish(Deadline(test::patience())), IsOk());
}

TEST(WriteBehind, DoesWithoutIoUringAndSaysSo) {
  const test::TempFolder folder;
  test::without_io_uring([&] {
    WriteBehind behind;
    EXPECT_THAT(behind.how(), HasSubstr("plain calls (the system refuses io_uring: "));
    write_and_sync(behind, folder.path() / "a");
  });
}

TEST(WriteBehind, ReportsWhatCannotBeSynced) {
  const auto fails = [] {
    UniqueFd ends[2];
    int both[2] = {-1, -1};
    ASSERT_EQ(::pipe2(both, O_CLOEXEC), 0);
    ends[0].reset(both[0]), ends[1].reset(both[1]);
    WriteBehind behind;
    behind.begin(ends[1].get());
    behind.reached(kFileBytes);
    EXPECT_THAT(behind.finish(Deadline(test::patience())),
                test::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fsync")));
  };
  fails();
  test::without_io_uring(fails);
}

}  // namespace
}  // namespace bascule
