// How often a process that dies may be started again, and when.
//
// Pure: time is an argument. A restart counts for an hour: a run of several days may lose an engine now and then, but a
// run whose engine keeps dying ends.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

#include <bascule/transport/deadline.h>

namespace bascule::ref {

class RestartBudget {
 public:
  static constexpr std::chrono::hours kWindow{1};
  static constexpr std::chrono::seconds kLongestWait{30};

  explicit RestartBudget(int restarts) : restarts_(static_cast<std::size_t>(restarts)) {}

  // Records a death at `now`. Returns when the process may be started again: at once, then 1, 2, 4, … seconds later;
  // nullopt if it may not.
  std::optional<Clock::time_point> restart_after(Clock::time_point now) {
    while (!deaths_.empty() && now - deaths_.front() >= kWindow) deaths_.pop_front();
    if (deaths_.size() >= restarts_) return std::nullopt;
    const std::size_t before = deaths_.size();
    deaths_.push_back(now);
    if (before == 0) return now;
    return now + std::min(kLongestWait, std::chrono::seconds(1) * (1 << std::min<std::size_t>(before - 1, 5)));
  }

  std::size_t used() const { return deaths_.size(); }  // within the hour before the last death

 private:
  std::size_t restarts_;
  std::deque<Clock::time_point> deaths_;
};

}  // namespace bascule::ref
