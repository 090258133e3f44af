// Whether a process has ended is said only if it is known.
#include <bascule/transport/posix/open_by.h>

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "support/descriptors.h"
#include "support/timing.h"

namespace bascule {
namespace {

// A child that ends when the pipe does.
class Child {
 public:
  template <typename Run>
  explicit Child(Run run) {
    EXPECT_EQ(::pipe(ends_), 0);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::close(ends_[1]);
    run(ends_[0]);
    ::_exit(0);
  }
  ~Child() {
    end();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ::close(ends_[0]);
  }
  void end() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = 0;
};

void wait_for_end(int pipe) {
  char byte = 0;
  while (::read(pipe, &byte, 1) > 0) {
  }
}

TEST(HasEnded, IsTrueOfAZombieAndOfNoLivingProcess) {
  Child child(wait_for_end);
  const ProcessMark mark = mark_of(child.pid());
  EXPECT_FALSE(has_ended(mark));
  child.end();
  const Deadline deadline(test::patience());
  while (!has_ended(mark) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(has_ended(mark)) << "not waited for yet";
}

// /proc shows the process as a zombie if its first thread has ended.
TEST(HasEnded, IsFalseWhileAnyThreadRuns) {
  Child child([](int pipe) {
    std::thread([pipe] {
      wait_for_end(pipe);
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // this thread alone
  });
  const ProcessMark mark = mark_of(child.pid());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_ended(mark));
}

TEST(HasEnded, IsFalseWithoutADescriptorToLookWith) {
  BASCULE_USES_ALL_DESCRIPTORS();
  const ProcessMark mark = mark_of(::getpid());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_free = ::dup(0);
  ::close(next_free);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool ended = has_ended(mark);
  const ProcessMark unknown = mark_of(::getpid());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(ended);
  EXPECT_FALSE(has_ended(unknown));
}

}  // namespace
}  // namespace bascule
