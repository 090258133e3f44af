// Doom: ends this process at a chosen control message as a crash would, without a message and without cleaning up. Or
// stops it there, until somebody lets it go on.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace bascule::test {

class Doom {
 public:
  void set(int messages, int signal = SIGKILL) {  // 0 messages: never
    signal_ = signal;
    left_ = messages;
  }
  // Call it for each message, on the thread that sends or receives it.
  void count() {
    ++counted_;
    if (left_.load() > 0 && --left_ == 0) ::kill(::getpid(), signal_);
  }
  int counted() const { return counted_; }

 private:
  std::atomic<int> signal_{SIGKILL}, counted_{0};
  std::atomic<int> left_{0};
};

}  // namespace bascule::test
