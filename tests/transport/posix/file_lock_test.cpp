#include <bascule/transport/posix/file_lock.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <thread>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule {
namespace {

class FileLockTest : public testing::Test {
 protected:
  UniqueFd open(int flags = O_RDWR) const {
    return UniqueFd(::open((folder_.path() / "file").c_str(), flags | O_CREAT | O_CLOEXEC, 0600));
  }
  static bool locks(const UniqueFd& fd, FileLock lock) {
    const absl::StatusOr<bool> taken = try_lock(fd.get(), lock);
    EXPECT_THAT(taken, test::IsOk());
    return taken.value_or(false);
  }
  test::TempFolder folder_;
};

TEST_F(FileLockTest, ManyShareAndOneExcludesThemWithinOneProcess) {
  const UniqueFd a = open(), b = open(O_RDONLY), writer = open();
  EXPECT_TRUE(locks(a, FileLock::kShared));
  EXPECT_TRUE(locks(b, FileLock::kShared));
  EXPECT_FALSE(locks(writer, FileLock::kExclusive));
  unlock(a.get());
  EXPECT_FALSE(locks(writer, FileLock::kExclusive));
  unlock(b.get());
  EXPECT_TRUE(locks(writer, FileLock::kExclusive));
  EXPECT_FALSE(locks(a, FileLock::kShared));
  EXPECT_TRUE(locks(writer, FileLock::kShared)) << "in place of the exclusive one";
  EXPECT_TRUE(locks(a, FileLock::kShared));
}

TEST_F(FileLockTest, OfOneByteLeavesTheOthersFree) {
  const UniqueFd reader = open(O_RDONLY), writer = open();
  EXPECT_TRUE(try_lock(reader.get(), FileLock::kShared, 64).value_or(false));
  EXPECT_FALSE(try_lock(writer.get(), FileLock::kExclusive, 64).value_or(true));
  EXPECT_TRUE(try_lock(writer.get(), FileLock::kExclusive, 65).value_or(false));
  EXPECT_FALSE(locks(writer, FileLock::kExclusive)) << "the whole file";
  unlock(reader.get(), 64);
  EXPECT_TRUE(try_lock(writer.get(), FileLock::kExclusive, 64).value_or(false));
}

TEST_F(FileLockTest, FallsWithTheLastDescriptorOfItsDescription) {
  UniqueFd reader = open(O_RDONLY);
  ASSERT_TRUE(locks(reader, FileLock::kShared));
  UniqueFd copy(::dup(reader.get()));
  const UniqueFd writer = open();
  { const UniqueFd another = open(O_RDONLY); }  // closing it drops no lock, as a process's own locks would
  reader.reset();
  EXPECT_FALSE(locks(writer, FileLock::kExclusive));
  copy.reset();
  EXPECT_TRUE(locks(writer, FileLock::kExclusive));
}

TEST_F(FileLockTest, WaitsForTheOtherUpToADeadline) {
  UniqueFd reader = open();
  const UniqueFd writer = open();
  ASSERT_TRUE(locks(reader, FileLock::kShared));
  EXPECT_EQ(try_lock_until(writer.get(), FileLock::kExclusive, Deadline(absl::Milliseconds(3))).value_or(true), false);
  std::thread release([&reader] { reader.reset(); });
  EXPECT_EQ(try_lock_until(writer.get(), FileLock::kExclusive, Deadline(test::patience())).value_or(false), true);
  release.join();
}

TEST_F(FileLockTest, IsSeenThroughAReadOnlyDescriptor) {
  const UniqueFd looks = open(O_RDONLY);
  EXPECT_FALSE(is_locked(looks.get()));
  for (const FileLock lock : {FileLock::kShared, FileLock::kExclusive}) {
    const UniqueFd other = open();
    ASSERT_TRUE(locks(other, lock));
    EXPECT_TRUE(is_locked(looks.get()));
  }
  EXPECT_FALSE(is_locked(looks.get())) << "their owners are gone";
  EXPECT_TRUE(is_locked(-1)) << "unknown";
}

TEST_F(FileLockTest, SaysWhatCannotBeLocked) {
  EXPECT_THAT(try_lock(-1, FileLock::kShared), testing::Not(test::IsOk()));
  const UniqueFd reader = open(O_RDONLY);
  EXPECT_THAT(try_lock(reader.get(), FileLock::kExclusive).status().ToString(),
              testing::HasSubstr("lock " + (folder_.path() / "file").string() + " ("))
      << "it cannot write";
}

}  // namespace
}  // namespace bascule
