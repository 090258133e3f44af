#include <bascule/transport/posix/cold_read.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "support/mounted_folder.h"
#include "support/no_io_uring.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kOffset = kColdAlignment;
constexpr std::uint64_t kBytes = 11 * kColdPiece + 4097;  // more pieces than buffers, and an odd end

class ColdReadTest : public testing::Test {
 protected:
  void write(const std::filesystem::path& folder, std::uint64_t bytes = kBytes) {
    text_.resize(kOffset + bytes);
    for (std::size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>(i * 7 + i / 4099);
    ASSERT_THAT(replace_file(folder / "file", text_), IsOk());
    fd_.reset(::open((folder / "file").c_str(), O_RDONLY | O_CLOEXEC));
  }
  // Reads everything, checks every byte, and returns how it was read.
  std::string read(std::uint64_t bytes = kBytes) {
    std::vector<std::byte> got(bytes);
    std::uint64_t total = 0;
    const auto how = read_cold(fd_.get(), kOffset, bytes, [&](std::uint64_t at, std::span<const std::byte> piece) {
      ASSERT_EQ(at % kColdPiece, 0u);
      ASSERT_LE(at + piece.size(), bytes);
      std::copy(piece.begin(), piece.end(), got.begin() + static_cast<std::ptrdiff_t>(at));
      total += piece.size();
    });
    EXPECT_THAT(how, IsOk());
    EXPECT_EQ(total, bytes) << "each byte once";
    EXPECT_TRUE(std::ranges::equal(got, std::as_bytes(std::span(text_)).subspan(kOffset, bytes)));
    return how.value_or("");
  }
  std::string text_;
  UniqueFd fd_;
  test::TempFolder folder_;
};

TEST_F(ColdReadTest, ReadsEveryByteOnceAndLeavesNothingInThePageCache) {
  write(folder_.path());
  ASSERT_EQ(::fsync(fd_.get()), 0);
  ASSERT_EQ(::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  const std::string how = read();
  const auto mapping = Mapping::map(fd_.get(), text_.size(), Access::kReadOnly, Pages::kLater);
  ASSERT_THAT(mapping, IsOk());
  EXPECT_EQ(mapping->in_memory(), how.find("O_DIRECT") == std::string::npos) << how;
  EXPECT_THAT(::fcntl(fd_.get(), F_GETFL) & O_DIRECT, 0) << "the descriptor is as it was";
}

TEST_F(ColdReadTest, ReadsTheSmallestFiles) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kColdAlignment, std::uint64_t{kColdPiece}}) {
    write(folder_.path(), bytes);
    read(bytes);
  }
}

TEST_F(ColdReadTest, DoesWithoutIoUringAndSaysSo) {
  write(folder_.path());
  test::without_io_uring([this] { EXPECT_THAT(read(), HasSubstr("plain calls (the system refuses io_uring")); });
}

TEST_F(ColdReadTest, ReadsThroughTheCacheWhereThereIsNoDirectWay) {
  const test::MountedFolder ramfs("ramfs");
  if (!ramfs.mounted()) GTEST_SKIP() << "needs the right to mount a ramfs";
  write(ramfs.path());
  EXPECT_THAT(read(), AllOf(HasSubstr("through the page cache"), Not(HasSubstr("O_DIRECT"))));
  test::without_io_uring([this] { EXPECT_THAT(read(), HasSubstr("through the page cache")); });
}

TEST_F(ColdReadTest, DoesWithUnregisteredBuffersWhereLockedMemoryIsShort) {
  write(folder_.path());
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const struct rlimit none { .rlim_cur = 0, .rlim_max = before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &none), 0);
  std::thread([this] {  // this thread gives up the right to lock unlimited memory
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct capabilities[2] = {};
    ASSERT_EQ(::syscall(SYS_capset, &header, capabilities), 0);
    const std::string how = read();
    EXPECT_TRUE(how.find("unregistered buffers") != std::string::npos || how.find("plain calls") != std::string::npos)
        << how;
  })
      .join();
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST_F(ColdReadTest, StopsBetweenPiecesWhenItIsToldTo) {
  write(folder_.path(), 40 * kColdPiece);
  const auto stop_after_one = [this] {
    std::stop_source stop;
    std::size_t pieces = 0;
    const auto take = [&](std::uint64_t, std::span<const std::byte>) {
      ++pieces;
      stop.request_stop();
    };
    EXPECT_THAT(read_cold(fd_.get(), kOffset, 40 * kColdPiece, take, stop.get_token()),
                StatusIs(StatusCode::kCancelled, HasSubstr("then was stopped")));
    EXPECT_LE(pieces, 8u) << "no more than were under way";
  };
  stop_after_one();
  test::without_io_uring(stop_after_one);
}

TEST_F(ColdReadTest, RefusesAFileThatIsShorter) {
  write(folder_.path());
  const auto nothing = [](std::uint64_t, std::span<const std::byte>) {};
  const auto refused = StatusIs(StatusCode::kOutOfRange, HasSubstr("the file ends after "));
  for (const std::uint64_t more : {std::uint64_t{1}, std::uint64_t{kColdPiece}}) {
    EXPECT_THAT(read_cold(fd_.get(), kOffset, kBytes + more, nothing), refused);
    test::without_io_uring([&] { EXPECT_THAT(read_cold(fd_.get(), kOffset, kBytes + more, nothing), refused); });
  }
  EXPECT_THAT(read_cold(-1, 0, 1, nothing), Not(IsOk()));
}

TEST(PieceProgress, ReadsOnAfterAShortRead) {
  PieceProgress piece{.wanted = 10'000, .had = 0};
  EXPECT_EQ(piece.needs_more(3000, false).value_or(false), true);
  EXPECT_EQ(piece.had, 3000u);
  EXPECT_EQ(piece.needs_more(-EINTR, false).value_or(false), true);
  EXPECT_EQ(piece.needs_more(-EAGAIN, false).value_or(false), true);
  EXPECT_EQ(piece.had, 3000u);
  EXPECT_EQ(piece.needs_more(7000, false).value_or(true), false);
}

TEST(PieceProgress, GoesBackToABlockWhereReadsMustBeAligned) {
  PieceProgress piece{.wanted = 10'000, .had = 0};
  EXPECT_EQ(piece.needs_more(4096 + 512, true).value_or(false), true);
  EXPECT_EQ(piece.had, 4096u);
  EXPECT_EQ(piece.needs_more(8192, true).value_or(true), false) << "more than was wanted, to the end of the block";
}

TEST(PieceProgress, TakesNothingAndLessThanABlockForTheEnd) {
  PieceProgress piece{.wanted = 10'000, .had = 8192};
  EXPECT_THAT(piece.needs_more(0, false), StatusIs(StatusCode::kOutOfRange, HasSubstr("8192 of 10000")));
  EXPECT_THAT(piece.needs_more(100, true), StatusIs(StatusCode::kOutOfRange, HasSubstr("8292 of 10000")));
  EXPECT_THAT(piece.needs_more(-EIO, false), StatusIs(StatusCode::kUnknown, HasSubstr("Input/output error")));
}

}  // namespace
}  // namespace bascule
