// Doom: ends this process at a chosen control message, as a crash would: nothing is said, nothing is cleaned up.
#pragma once

#include <atomic>
#include <csignal>

namespace bascule::test {

class Doom {
 public:
  void set(int messages) { left_ = messages; }  // 0: never
  // With each message, from the thread that sends or hears it.
  void count() {
    if (left_.load() > 0 && --left_ == 0) std::raise(SIGKILL);
  }

 private:
  std::atomic<int> left_{0};
};

}  // namespace bascule::test
