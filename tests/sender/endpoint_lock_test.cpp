#include <bascule/sender/endpoint_lock.h>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <thread>

#include "support/hung_file.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class EndpointLockTest : public testing::Test {
 protected:
  absl::StatusOr<EndpointLock> take() const {
    return EndpointLock::take(open_private_folder(folder_.path()).value(), file_);
  }
  std::string content() const {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(std::string_view text) const { std::ofstream(file_, std::ios::trunc) << text; }

  // The epoch of a sender that took the endpoint for the first time, and ended.
  Epoch first_epoch() const {
    const auto lock = take();
    EXPECT_THAT(lock, IsOk());
    return lock.ok() ? lock->epoch() : 0;
  }

  test::TempFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "sender.lock";
};

TEST_F(EndpointLockTest, BeginsWithTheTimeAndNoVersion) {
  const auto now = [] {  // not std::time(), which may be some milliseconds behind
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<Epoch>(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
  };
  const Epoch before = now();
  const auto lock = take();
  ASSERT_THAT(lock, IsOk());
  EXPECT_GE(lock->epoch(), before);
  EXPECT_LE(lock->epoch(), now());
  EXPECT_EQ(lock->last_version(), 0);
}

// posix_spawn() calls no handlers of fork(), and its child has all descriptors until its program starts.
TEST_F(EndpointLockTest, EndsWithItsSenderThoughAChildHasACopyOfTheDescriptor) {
  auto lock = std::make_optional(take());
  ASSERT_THAT(*lock, IsOk());
  const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  ASSERT_GE(child, 0);
  if (child == 0)
    while (true) ::pause();
  lock.reset();
  EXPECT_THAT(take(), IsOk());
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(EndpointLockTest, ContinuesWhereTheSenderBeforeEnded) {
  const Epoch first = first_epoch();
  for (std::uint64_t run = 1; run <= 3; ++run) {
    auto lock = take();
    ASSERT_THAT(lock, IsOk());
    EXPECT_EQ(lock->epoch(), first + run);
    EXPECT_EQ(lock->last_version(), (run - 1) * 10);
    ASSERT_THAT(lock->record(run * 10 - 1), IsOk());
    ASSERT_THAT(lock->record(run * 10), IsOk());
    EXPECT_EQ(lock->last_version(), run * 10);
  }
  EXPECT_TRUE(std::filesystem::exists(file_)) << "it outlives its senders, which continue its numbers";
}

TEST_F(EndpointLockTest, HoldsEveryNumber) {
  constexpr Version kLast = std::numeric_limits<Version>::max();
  {
    auto lock = take();
    ASSERT_THAT(lock, IsOk());
    const std::size_t size = content().size();
    ASSERT_THAT(lock->record(kLast), IsOk());
    EXPECT_EQ(content().size(), size) << "a line of one size is never cut short by a rewrite";
  }
  EXPECT_EQ(take()->last_version(), kLast);
}

TEST_F(EndpointLockTest, RefusesTheLastEpochWhichHasNoNext) {
  static_cast<void>(first_epoch());
  std::string last = content();
  last.replace(last.find("epoch ") + 6, 20, std::to_string(std::numeric_limits<Epoch>::max()));
  write(last);
  EXPECT_THAT(take(), StatusIs(StatusCode::kDataLoss, HasSubstr("is not a valid sender.lock")));
}

// Surviving engines distinguish a new run from the one that they serve by its epoch.
TEST_F(EndpointLockTest, NeverRepeatsAFirstEpochWhereTheFileIsLost) {
  Epoch last = first_epoch();
  for (int i = 0; i < 3; ++i) {
    std::filesystem::remove(file_);
    const Epoch next = first_epoch();
    EXPECT_GT(next, std::exchange(last, next));
  }
}

TEST_F(EndpointLockTest, TakesNoNumberTwice) {
  auto lock = take();
  ASSERT_THAT(lock, IsOk());
  ASSERT_THAT(lock->record(7), IsOk());
  const std::string before = content();
  for (const Version version : {7, 6, 0})
    EXPECT_THAT(lock->record(version),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not above the last one, 7")));
  EXPECT_EQ(content(), before);
}

TEST_F(EndpointLockTest, RefusesASecondSenderAndNamesTheFirst) {
  const auto first = take();
  ASSERT_THAT(first, IsOk());
  const std::string before = content();
  EXPECT_THAT(
      take(),
      StatusIs(StatusCode::kAlreadyExists,
               AllOf(HasSubstr(cat("this process, pid ", ::getpid(), ", has a sender at ", folder_.path().string())),
                     HasSubstr("close that one first, or choose another endpoint"))));
  EXPECT_EQ(content(), before);
}

// A second sender looks for the holder among all open files, and one of them never answers.
TEST_F(EndpointLockTest, RefusesASecondSenderThoughAFileHangs) {
  const auto first = take();
  ASSERT_THAT(first, IsOk());
  test::HungFile hung;
  if (!hung.open()) GTEST_SKIP() << "no right to mount FUSE file systems";
  const auto begun = std::chrono::steady_clock::now();
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    hung.let_go();
  });
  EXPECT_THAT(take(), StatusIs(StatusCode::kAlreadyExists, HasSubstr("has a sender at")));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
  end.join();
}

TEST_F(EndpointLockTest, FallsWithItsProcess) {
  const Epoch first = first_epoch();
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const UniqueFd in(told[0]), out(told[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto lock = take();
    const char word = lock.ok() && lock->record(4).ok() ? 'y' : 'n';
    if (::write(told[1], &word, 1) == 1) ::pause();
    ::_exit(1);
  }
  char word = 0;
  ASSERT_EQ(::read(in.get(), &word, 1), 1);
  EXPECT_EQ(word, 'y');
  EXPECT_THAT(take(), StatusIs(StatusCode::kAlreadyExists, HasSubstr(cat("pid ", child, ","))));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto lock = take();
  ASSERT_THAT(lock, IsOk());
  EXPECT_EQ(lock->epoch(), first + 2);
  EXPECT_EQ(lock->last_version(), 4);
}

TEST_F(EndpointLockTest, RefusesAFileThatItDidNotWrite) {
  const Epoch first = first_epoch();
  const std::string good = content();
  std::string letter = good, sign = good;
  letter[letter.size() - 3] = 'x';
  sign[sign.find("version ") + 8] = '-';
  for (const std::string& bad :
       {std::string("garbage\n"), std::string(1, '\0'), letter, sign, good + good, good.substr(0, good.size() - 1),
        good.substr(0, good.size() - 5), good.substr(0, 10)}) {
    write(bad);
    EXPECT_THAT(take(), StatusIs(StatusCode::kDataLoss,
                                 AllOf(HasSubstr(file_.string() + " is not a valid sender.lock"),
                                       HasSubstr("if no sender and no engine of this endpoint is running, remove it"))))
        << bad;
    EXPECT_EQ(content(), bad) << "left for a person to look at";
  }
  write(good);
  EXPECT_EQ(take()->epoch(), first + 1);
}

TEST_F(EndpointLockTest, TakesAnEmptyFileForANewOne) {
  write("");
  EXPECT_EQ(take()->last_version(), 0);
}

TEST_F(EndpointLockTest, FollowsNoLink) {
  std::filesystem::create_symlink(folder_.path() / "elsewhere", file_);
  EXPECT_FALSE(take().ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "elsewhere"));
}

// The lock lies in the folder that was checked, whatever the folder's name means now.
TEST_F(EndpointLockTest, IsInTheFolderThatWasOpened) {
  const test::TempFolder parent;
  const std::filesystem::path run = parent.path() / "run", moved = parent.path() / "moved";
  UniqueFd folder = make_private_folder(run).value();
  std::filesystem::rename(run, moved);
  std::filesystem::create_directory_symlink(folder_.path(), run);
  const auto lock = EndpointLock::take(std::move(folder), run / "sender.lock");
  ASSERT_THAT(lock, IsOk());
  EXPECT_TRUE(std::filesystem::exists(moved / "sender.lock"));
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace bascule
