// PackPace: how many threads pack a slot in host memory that devices copy from meanwhile.
//
// The pack and the copies compete for the host's memory. With too many threads the copies fall behind, and the send
// waits for them once the pack is done; with too few the copies wait for the pack. A send is shortest if both end at
// about the same time, so each send changes the number for the next one by one thread.
#pragma once

#include <algorithm>

namespace bascule::inline v0 {

class PackPace {
 public:
  // `threads`: all that there are. At least half of them pack, and 8 if there are so many.
  explicit PackPace(int threads)
      : most_(threads), least_(std::max(threads / 2, std::min(threads, 8))), threads_(threads) {}

  int threads() const { return threads_; }

  // A send took so many seconds to pack, and so many from the end of the pack until its workers had the version.
  // Packs under 5 ms change nothing: beside them, the turns between the processes count.
  void took(double pack, double rest) {
    if (pack < 5e-3) return;
    if (rest > pack / 10) threads_ = std::max(threads_ - 1, least_);
    if (rest < pack / 40) threads_ = std::min(threads_ + 1, most_);
  }

 private:
  int most_, least_, threads_;
};

}  // namespace bascule::inline v0
