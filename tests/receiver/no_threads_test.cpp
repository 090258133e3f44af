// A process that cannot start another thread, as under `ulimit -v`: each end reports it, whichever thread is missing,
// and the process survives.
#include <gmock/gmock.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "support/temp_folder.h"
#include "support/test_model.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

// The result of `call` in a process that may map `bytes` more, and has some in reserve.
std::string with_room_for(std::uint64_t bytes, const std::function<absl::Status()>& call) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::mallopt(M_ARENA_MAX, 1);
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
    void* volatile kept = std::malloc(16 << 20);
    std::free(kept);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{.rlim_cur = pages * 4096 + bytes, .rlim_max = RLIM_INFINITY};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(1);
    const std::string text = call().ToString();
    ::_exit(::write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string text(2000, ' ');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(ends[0], text.data(), text.size()), 0)));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? text : cat("it ended by signal ", WTERMSIG(status));
}

class NoThreads : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "a sanitizer maps more than any limit";
#endif
  }
  // Allows no thread at first, then one more each time, up to more than it needs.
  static void expect_errors(const std::function<absl::Status()>& call) {
    constexpr std::uint64_t kStack = 9u << 20;
    int refused = 0;
    for (std::uint64_t threads = 0; threads < 9; ++threads) {
      const std::string text = with_room_for(threads * kStack + (1u << 20), call);
      EXPECT_THAT(text, AnyOf("OK", AllOf(StartsWith("RESOURCE_EXHAUSTED"), HasSubstr("RLIMIT_AS (ulimit -v)"))));
      refused += text != "OK";
    }
    EXPECT_GT(refused, 0);
    EXPECT_EQ(with_room_for(200u << 20, call), "OK");
  }

  const test::TempFolder folder_;
  const std::string endpoint_ = cat("shm://", folder_.path().string(), "/e");
};

TEST_F(NoThreads, ASenderSaysSo) {
  expect_errors([this] { return Sender::listen({.endpoint = endpoint_, .threads = 3}).status(); });
}

TEST_F(NoThreads, AReceiverSaysSo) {
  expect_errors([this] { return Receiver::connect({.endpoint = endpoint_, .worker = "a"}).status(); });
}

TEST_F(NoThreads, AReceiverThatCopiesSaysSo) {
  static std::array<std::byte, 16> memory{};
  expect_errors([this]() -> absl::Status {
    auto receiver = Receiver::connect({.endpoint = endpoint_, .worker = "a", .threads = 3});
    if (!receiver.ok()) return receiver.status();
    std::vector<TargetTensor> targets(1);
    targets[0].name = "w";
    targets[0].dtype = DType::kF32;
    targets[0].shape = {4};
    targets[0].data = memory.data();
    return receiver->register_model(std::move(targets));
  });
}

}  // namespace
}  // namespace bascule
