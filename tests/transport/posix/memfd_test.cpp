#include "transport/posix/memfd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t kBytes = 10000;

TEST(Memfd, IsAllocatedInFullAndWritable) {
  auto memory = make_memfd("bascule-test", kBytes);
  ASSERT_THAT(memory, IsOk());
  EXPECT_EQ(memory->bytes, kBytes);
  EXPECT_EQ(memory->writable().size(), kBytes);
  for (std::byte& byte : memory->writable()) ASSERT_EQ(std::exchange(byte, std::byte{7}), std::byte{0});
  struct stat status {};
  ASSERT_EQ(::fstat(memory->descriptor.get(), &status), 0);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_size), kBytes);
  EXPECT_EQ(status.st_size % 4096, 0);
  EXPECT_GE(status.st_blocks * 512, status.st_size) << "a page is missing";
}

TEST(Memfd, SaysWhichPagesItGot) {
  const auto memory = make_memfd("bascule-test", kBytes);
  ASSERT_THAT(memory, IsOk());
  EXPECT_THAT(memory->description,
              AnyOf("memfd, 2 MiB pages", StartsWith("memfd, 4 KiB pages (the system's shmem_enabled is ")));
}

TEST(Memfd, OfNothingStillHasADescriptor) {
  auto memory = make_memfd("bascule-test", 0);
  ASSERT_THAT(memory, IsOk());
  EXPECT_TRUE(memory->writable().empty());
  EXPECT_THAT(check_sealed(memory->descriptor.get(), 0), IsOk());
}

TEST(Memfd, ClosesOnExec) {
  const auto memory = make_memfd("bascule-test", kBytes);
  ASSERT_THAT(memory, IsOk());
  EXPECT_NE(::fcntl(memory->descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
}

// What a worker could try with the descriptor that it was given.
class SealedMemfd : public testing::Test {
 protected:
  void SetUp() override {
    auto made = make_memfd("bascule-test", kBytes);
    ASSERT_THAT(made, IsOk());
    memory_ = *std::move(made);
    memory_.writable()[0] = std::byte{42};
  }
  void TearDown() override { EXPECT_EQ(memory_.writable()[0], std::byte{42}); }
  int fd() const { return memory_.descriptor.get(); }
  SlotMemory memory_;
};

TEST_F(SealedMemfd, CannotBeMappedWritable) {
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_THAT(Mapping::map(fd(), kBytes, Access::kReadWrite),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("map")));
  void* const readable = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(::mprotect(readable, kBytes, PROT_READ | PROT_WRITE), -1);
  ::munmap(readable, kBytes);
}

TEST_F(SealedMemfd, CannotBeReopenedForWriting) {
  const UniqueFd again(::open(("/proc/self/fd/" + std::to_string(fd())).c_str(), O_RDWR | O_CLOEXEC));
  if (again) {
    EXPECT_EQ(::mmap(nullptr, kBytes, PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  }
}

TEST_F(SealedMemfd, CannotBeWritten) {
  EXPECT_EQ(::pwrite(fd(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
}

TEST_F(SealedMemfd, CannotBeResized) {
  EXPECT_EQ(::ftruncate(fd(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd(), 1 << 20), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(SealedMemfd, TakesNoMoreSeals) {
  EXPECT_EQ(::fcntl(fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(SealedMemfd, IsTakenByAReader) {
  EXPECT_THAT(check_sealed(fd(), kBytes), IsOk());
  EXPECT_THAT(check_sealed(fd(), 3 * 4096), IsOk());
  EXPECT_THAT(check_sealed(fd(), 3 * 4096 + 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has 12288 bytes, expected at least 12289")));
}

TEST(CheckSealed, RefusesAPlainFile) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_EQ(::ftruncate(::fileno(file.get()), kBytes), 0);
  EXPECT_THAT(check_sealed(::fileno(file.get()), kBytes),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not sealed")));
}

TEST(CheckSealed, RefusesAMemfdWithoutEverySeal) {
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  for (const int missing : {kAll, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL}) {
    const UniqueFd fd(::memfd_create("bascule-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, kAll & ~missing), 0);
    EXPECT_THAT(check_sealed(fd.get(), kBytes), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not sealed")))
        << missing;
  }
}

TEST(CheckSealed, RefusesWhatIsNoFile) {
  EXPECT_THAT(check_sealed(-1, 0), testing::Not(IsOk()));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_THAT(check_sealed(in.get(), 0), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not sealed")));
}

}  // namespace
}  // namespace bascule
