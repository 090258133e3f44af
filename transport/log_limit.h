// LogLimit: keeps lines that a peer can cause again and again from filling the user's log.
//
//   the same line              is logged three times at once, then once a minute, with the number left out in between
//   all these lines together   2,000 at once, then one every ten seconds, again with the number left out
//
// So the first line of each kind is logged, whole, unless thousands of other lines came right before it.
//
// Threads: any, one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <bascule/transport/deadline.h>
#include <bascule/transport/recent.h>

namespace bascule::inline v0 {

class LogLimit {
 public:
  // Returns what to log now: `line`, with what was left out before it; or nullopt if it is left out. If there is no
  // memory, nothing has changed.
  std::optional<std::string> pass(const std::string& line, Clock::time_point now);

 private:
  // `at_once` lines are let through at once, and then one per `every`.
  class Allowance {
   public:
    bool has_room(Clock::time_point now, int at_once, Clock::duration every) const {
      return used_up_until_ <= now + (at_once - 1) * every;
    }
    void use(Clock::time_point now, Clock::duration every) { used_up_until_ = std::max(used_up_until_, now) + every; }

   private:
    Clock::time_point used_up_until_{};  // by one line per `every`
  };
  struct Said {
    Allowance allowance;
    std::uint64_t left_out = 0;  // since the line was logged last
  };

  Recent<Said> said_;  // by line
  Allowance all_;
  std::uint64_t left_out_ = 0;  // other lines since a line was logged last
};

}  // namespace bascule::inline v0
