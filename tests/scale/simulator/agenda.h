// Agenda: virtual time, and the events in it. The simulator has no other clock.
//
// One thread. Events at the same time happen in the order in which they were added, so that runs can be repeated.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <bascule/transport/deadline.h>

namespace bascule::simulator {

using Time = Clock::time_point;
using Duration = Clock::duration;

inline Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(std::llround(seconds * 1e9)));
}

class Agenda {
 public:
  Time now() const { return now_; }

  // Adds an event; a time in the past means now.
  void at(Time when, std::function<void()> what) {
    entries_.push_back({std::max(when, now_), next_++, std::move(what)});
    std::ranges::push_heap(entries_, later);
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // Runs the next event. Returns false if there is none.
  bool step() {
    if (entries_.empty()) return false;
    std::ranges::pop_heap(entries_, later);
    const Entry entry = std::move(entries_.back());
    entries_.pop_back();
    now_ = entry.when;
    entry.what();
    return true;
  }

 private:
  struct Entry {
    Time when;
    std::uint64_t number = 0;
    std::function<void()> what;
  };
  static bool later(const Entry& a, const Entry& b) { return a.when != b.when ? a.when > b.when : a.number > b.number; }

  Time now_{std::chrono::hours(1)};  // for the fleet time_point{} is in the past
  std::uint64_t next_ = 0;
  std::vector<Entry> entries_;  // a heap
};

}  // namespace bascule::simulator
