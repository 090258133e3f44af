#include <bascule/transport/posix/memfd.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t kMemfdBytes = 10000;

TEST(Memfd, IsAllocatedInFullAndWritable) {
  auto memory = make_memfd("bascule-test", kMemfdBytes);
  ASSERT_THAT(memory, IsOk());
  EXPECT_EQ(memory->bytes, kMemfdBytes);
  EXPECT_EQ(memory->writable().size(), kMemfdBytes);
  for (std::byte& byte : memory->writable()) ASSERT_EQ(std::exchange(byte, std::byte{7}), std::byte{0});
  struct stat status {};
  ASSERT_EQ(::fstat(memory->descriptor.get(), &status), 0);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_size), kMemfdBytes);
  EXPECT_EQ(status.st_size % 4096, 0);
  EXPECT_GE(status.st_blocks * 512, status.st_size) << "a page is missing";
}

TEST(Memfd, CanBeAllocatedInParts) {
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 30;
  auto memory = make_sparse_memfd("bascule-test", kLarge, 5000);
  ASSERT_THAT(memory, IsOk());
  const int fd = memory->descriptor.get();
  EXPECT_THAT(check_sealed(fd, kLarge), IsOk());
  struct stat status {};
  ASSERT_EQ(::fstat(fd, &status), 0);
  EXPECT_EQ(status.st_blocks * 512, 8192);
  ASSERT_THAT(allocate_memfd(fd, kLarge / 2, 4097), IsOk()) << "even though it is sealed";
  ASSERT_EQ(::fstat(fd, &status), 0);
  EXPECT_EQ(status.st_blocks * 512, 16384);
  memory->writable()[kLarge / 2 + 8191] = std::byte{7};
  EXPECT_THAT(allocate_memfd(fd, 0, std::uint64_t{1} << 60),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("bytes of shared memory")));
  EXPECT_FALSE(allocate_memfd(fd, kLarge, 4096).ok()) << "it cannot grow";
}

TEST(Memfd, SaysWhichPagesItGot) {
  const auto memory = make_memfd("bascule-test", kMemfdBytes);
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
  const auto memory = make_memfd("bascule-test", kMemfdBytes);
  ASSERT_THAT(memory, IsOk());
  EXPECT_NE(::fcntl(memory->descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
}

// The test's own control group below this process's, version 1 or 2; none if the test may not make one.
std::optional<std::filesystem::path> small_group(std::uint64_t limit) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const bool first = line.find(":memory:") != std::string::npos, second = line.starts_with("0::");
    if (!first && !second) continue;
    const std::filesystem::path folder = std::string(first ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup") +
                                         line.substr(line.rfind(':') + 1) + "/bascule-test-" +
                                         std::to_string(::getpid());
    if (::mkdir(folder.c_str(), 0755) != 0) continue;
    std::ofstream(folder / (first ? "memory.limit_in_bytes" : "memory.max")) << limit << std::flush;
    if (std::ofstream file(folder / "cgroup.procs"); file.is_open()) return folder;
    ::rmdir(folder.c_str());
  }
  return std::nullopt;
}

// The kernel would kill a process that exceeds its control group's limit instead of refusing the page.
TEST(Memfd, IsRefusedWhereItsControlGroupHasNoRoom) {
  constexpr std::uint64_t kLimit = 64u << 20;
  const std::optional<std::filesystem::path> group = small_group(kLimit);
  if (!group) GTEST_SKIP() << "no control group can be made here";
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::ofstream(*group / "cgroup.procs") << ::getpid() << std::flush;
    const absl::Status refused = make_memfd("bascule-test", 2 * kLimit).status();
    const std::string text = make_memfd("bascule-test", kLimit / 8).ok() ? refused.ToString() : "none at all";
    ::_exit(::write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string text(1000, ' ');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(ends[0], text.data(), text.size()), 0)));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "it was killed";
  ::rmdir(group->c_str());
  if (text.find("none at all") != std::string::npos) GTEST_SKIP() << "the group has no limit of memory";
  EXPECT_THAT(text, testing::AllOf(StartsWith("RESOURCE_EXHAUSTED"), HasSubstr("needs 134217728 bytes"),
                                   HasSubstr("memory limit (memory.max, or memory.limit_in_bytes) is 67108864")));
}

// A memfd is a file: the system would end the process by SIGXFSZ.
TEST(Memfd, IsRefusedAboveTheLimitOfAFilesSize) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status refused = make_memfd("bascule-test", 1 << 20).status();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(refused, StatusIs(StatusCode::kResourceExhausted,
                                testing::AllOf(HasSubstr("shared memory for a slot needs 1048576 bytes"),
                                               HasSubstr("files of 4096"), HasSubstr("ulimit -f"))));
}

// Everything that a worker could try with its descriptor.
class SealedMemfd : public testing::Test {
 protected:
  void SetUp() override {
    auto made = make_memfd("bascule-test", kMemfdBytes);
    ASSERT_THAT(made, IsOk());
    memory_ = *std::move(made);
    memory_.writable()[0] = std::byte{42};
  }
  void TearDown() override { EXPECT_EQ(memory_.writable()[0], std::byte{42}); }
  int fd() const { return memory_.descriptor.get(); }
  SlotMemory memory_;
};

TEST_F(SealedMemfd, CannotBeMappedWritable) {
  EXPECT_EQ(::mmap(nullptr, kMemfdBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_THAT(Mapping::map(fd(), kMemfdBytes, Access::kReadWrite),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("map")));
  void* const readable = ::mmap(nullptr, kMemfdBytes, PROT_READ, MAP_SHARED, fd(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(::mprotect(readable, kMemfdBytes, PROT_READ | PROT_WRITE), -1);
  ::munmap(readable, kMemfdBytes);
}

TEST_F(SealedMemfd, CannotBeReopenedForWriting) {
  const UniqueFd again(::open(("/proc/self/fd/" + std::to_string(fd())).c_str(), O_RDWR | O_CLOEXEC));
  if (again) {
    EXPECT_EQ(::mmap(nullptr, kMemfdBytes, PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
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
  EXPECT_THAT(check_sealed(fd(), kMemfdBytes), IsOk());
  EXPECT_THAT(check_sealed(fd(), 3 * 4096), IsOk());
  EXPECT_THAT(check_sealed(fd(), 3 * 4096 + 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has 12288 bytes, expected at least 12289")));
}

TEST(CheckSealed, RefusesAPlainFile) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_EQ(::ftruncate(::fileno(file.get()), kMemfdBytes), 0);
  EXPECT_THAT(check_sealed(::fileno(file.get()), kMemfdBytes),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not sealed")));
}

TEST(CheckSealed, RefusesAMemfdWithoutEverySeal) {
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  for (const int missing : {kAll, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL}) {
    const UniqueFd fd(::memfd_create("bascule-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(fd.get(), kMemfdBytes), 0);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, kAll & ~missing), 0);
    EXPECT_THAT(check_sealed(fd.get(), kMemfdBytes), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not sealed")))
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
