// The phases of a step by name, and how long each took.
//
// Threads: one.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace bascule::ref {

class Stopwatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Stopwatch(std::function<Time()> now = std::chrono::steady_clock::now)
      : now_(std::move(now)), last_(now_()) {}

  // Adds the time since the last phase ended, or since the start, to `phase`.
  void end(std::string_view phase) {
    const Time now = now_();
    seconds_[std::string(phase)] += std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

  // Returns NaN if there was no such phase.
  double seconds(std::string_view phase) const {
    const auto found = seconds_.find(phase);
    return found != seconds_.end() ? found->second : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  std::function<Time()> now_;
  Time last_;
  std::map<std::string, double, std::less<>> seconds_;
};

}  // namespace bascule::ref
