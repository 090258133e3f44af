// Measures how well the engines are used: for each one, its tokens, how long it has had work, and how long it has had
// none while another engine had some.
//
// For one thread. It reads no clock: callers pass the time, which never goes back from call to call.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace bascule::ref {

// The use of one engine since the meter began.
struct EngineUse {
  std::int64_t tokens = 0;  // of answered requests
  double busy_seconds = 0;  // with a request under way
  double idle_seconds = 0;  // up, without a request, while another engine had one: lost to stragglers

  EngineUse& operator+=(const EngineUse& more) {
    tokens += more.tokens;
    busy_seconds += more.busy_seconds;
    idle_seconds += more.idle_seconds;
    return *this;
  }
  EngineUse operator-(const EngineUse& before) const {
    return {tokens - before.tokens, busy_seconds - before.busy_seconds, idle_seconds - before.idle_seconds};
  }
};

class UseMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit UseMeter(std::size_t engines) : engines_(engines) {}

  void begin(std::size_t engine, Time now);  // a request begins
  void end(std::size_t engine, Time now, std::int64_t tokens);
  void set_up(std::size_t engine, Time now, bool up);  // an engine that is not up is not idle

  std::vector<EngineUse> use(Time now);  // by engine

 private:
  struct Engine {
    EngineUse use = {};
    int under_way = 0;
    bool up = true;
  };
  void go_on(Time now);

  std::vector<Engine> engines_;
  Time last_ = {};
};

}  // namespace bascule::ref
