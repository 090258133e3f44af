// Doom: ends this process at a chosen control message as a crash would, without a message and without cleaning up.
#pragma once

#include <atomic>
#include <csignal>

namespace bascule::test {

class Doom {
 public:
  void set(int messages) { left_ = messages; }  // 0: never
  // Call it for each message, on the thread that sends or receives it.
  void count() {
    if (left_.load() > 0 && --left_ == 0) std::raise(SIGKILL);
  }

 private:
  std::atomic<int> left_{0};
};

}  // namespace bascule::test
