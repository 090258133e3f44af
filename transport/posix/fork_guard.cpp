#include <bascule/transport/posix/fork_guard.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace bascule::inline v0 {
namespace {

struct Table {
  std::mutex mutex;  // held across every fork
  std::set<int> kept;
};

// Never destroyed, since objects destroyed at exit may still close descriptors.
Table& table() {
  static Table& all = *new Table;
  return all;
}

// Runs in the child before fork() returns, so it makes only system calls and allocates nothing.
void make_inert() {
  const int inert = ::eventfd(0, EFD_CLOEXEC);
  for (const int fd : table().kept)
    if (inert < 0 || ::dup3(inert, fd, O_CLOEXEC) < 0) ::close(fd);
  if (inert >= 0) ::close(inert);
  table().mutex.unlock();
}

void watch_forks() {
  [[maybe_unused]] static const int watching = ::pthread_atfork([] { table().mutex.lock(); },  // NOLINT(cert-err58-cpp)
                                                                [] { table().mutex.unlock(); },  // in the parent
                                                                make_inert);
}

}  // namespace

ForkGuard::ForkGuard() {
  watch_forks();
  table().mutex.lock();
}
ForkGuard::~ForkGuard() { table().mutex.unlock(); }

void ForkGuard::keep(int fd) {
  if (fd >= 0) table().kept.insert(fd);
}
void ForkGuard::give_up(int fd) { table().kept.erase(fd); }

ProcessFd& ProcessFd::operator=(ProcessFd&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

ProcessFd ProcessFd::copy_of(int fd) {
  return make([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); });
}

void ProcessFd::reset(int fd) {
  if (fd_ < 0 && fd < 0) return;
  ForkGuard guard;
  if (fd_ >= 0) {
    guard.give_up(fd_);
    ::close(fd_);
  }
  guard.keep(fd_ = fd);
}

}  // namespace bascule::inline v0
