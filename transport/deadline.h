// A point on the steady clock. Nothing in Bascule waits by wall time.
#pragma once

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace bascule::inline v0 {

using Clock = std::chrono::steady_clock;

// The same length of time, to be added to a time of the clock: at most a year, at least zero. A longer one could exceed
// the clock's range, and the sum would lie in the past. Nothing else converts durations (tests/arrows/durations.py).
inline Clock::duration on_clock(absl::Duration length) {
  return absl::ToChronoNanoseconds(std::clamp(length, absl::ZeroDuration(), absl::Hours(24 * 365)));
}

class Deadline {
 public:
  // `timeout` from now; absl::InfiniteDuration() counts as a year, a negative duration as zero.
  explicit Deadline(absl::Duration timeout) : at_(Clock::now() + on_clock(timeout)) {}
  explicit Deadline(Clock::time_point at) : at_(at) {}

  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }
  absl::Duration left() const { return absl::FromChrono(at_ - Clock::now()); }

 private:
  Clock::time_point at_;
};

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace bascule::inline v0
