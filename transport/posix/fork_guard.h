// Descriptors that end with this process. A forked child that does not exec shares every open file of its parent, so a
// lock, a listening socket or a connection would outlive a killed parent. For each descriptor that is kept here, such a
// child instead gets an inert descriptor under the same number, so that it may close its parent's objects without harm.
// fork() arranges this (by pthread_atfork); a raw clone() or _Fork() does not.
//
// Any thread. A process has one table of kept descriptors.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// While a guard exists, no fork of this process begins. Open and keep a descriptor under one guard, so that no child is
// forked between the two. Hold a guard only for system calls that do not wait, and never while user code runs.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  void keep(int fd);     // -1: does nothing
  void give_up(int fd);  // call it before close(): the number may soon stand for another file
};

// Owner of a descriptor that ends with this process.
class ProcessFd {
 public:
  ProcessFd() = default;
  ProcessFd(UniqueFd fd) { reset(fd.release()); }  // NOLINT(google-explicit-constructor): owns the same, and is safer
  ProcessFd(ProcessFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ProcessFd& operator=(ProcessFd&& other) noexcept;
  ~ProcessFd() { reset(); }
  // Makes an owner of the descriptor that `open` returns. No child gets it, however early the fork.
  template <typename Open>
  static ProcessFd make(Open open) {
    ProcessFd made;
    ForkGuard guard;
    guard.keep(made.fd_ = open());
    return made;
  }
  // Makes another descriptor of the same open file; none, with errno, if the process is out of them.
  static ProcessFd copy_of(int fd);

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// The numbers of `descriptors`, which still own them.
inline std::vector<int> numbers_of(std::span<const ProcessFd> descriptors) {
  std::vector<int> numbers;
  for (const ProcessFd& descriptor : descriptors) numbers.push_back(descriptor.get());
  return numbers;
}

}  // namespace bascule::inline v0
