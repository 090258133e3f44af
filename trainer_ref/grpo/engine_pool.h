// The engines that generate: requests are shared out among those that are up, and one that is lost with its engine is
// asked of another, once.
//
// Each engine has a few threads that take requests from one queue, each with a connection of its own, so a fast engine
// takes more of them. A thread whose engine is full pauses, and one whose engine fails waits until /health says that it
// serves again: an engine may be killed and started anew in the middle of a run.
//
// Threads: every call from any thread. Destruction cancels what is under way.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/grpo/rollout_request.h>

namespace bascule::ref {

struct EnginePoolOptions {
  std::vector<std::string> urls;  // "http://127.0.0.1:8001"
  int requests_per_engine = 16;   // under way at a time
  absl::Duration request_timeout = absl::Seconds(60);
  std::function<void(std::string_view)> log = [](std::string_view) {};  // lost requests, engines that came back
};

// The answer to one request.
struct Generation {
  std::vector<Rollout> rollouts;  // empty: lost twice
  std::size_t engine = 0;         // which of `urls` answered
  std::chrono::steady_clock::time_point began, ended;
};

// What /health of each engine says, one after the other, two seconds each at most: "engine http://… says HTTP 503:
// joining, no sender has been at /tmp/run yet; engine …". For texts about engines that do not come.
std::string what_engines_say(const std::vector<std::string>& urls);

class EnginePool {
 public:
  explicit EnginePool(EnginePoolOptions options);
  ~EnginePool();

  // Blocks until every engine serves a version, or until `stopped`. DEADLINE_EXCEEDED names the first that does not,
  // and what it says.
  absl::Status wait_until_serving(
      absl::Duration timeout, const std::function<bool()>& stopped = [] { return false; });

  // For a trainer that shares a device with its engines: they give their caches back (POST /sleep), and take them again
  // (POST /wake_up). Blocks until each has answered, one after the other, at most the request timeout each; all are
  // asked. UNAVAILABLE names the first that did not do it, and what it says. One that sleeps already sleeps on.
  absl::Status sleep();
  absl::Status wake_up();

  // Asks all `requests`; answers come back in their order. Blocks as long as answers arrive, to this call or to
  // another, and twice the request timeout beyond the last. INVALID_ARGUMENT: an engine refused a request (its words
  // are passed on). UNAVAILABLE: no request was answered at all. CANCELLED: cancel().
  absl::StatusOr<std::vector<Generation>> generate(std::vector<RolloutRequest> requests);

  // Ends every call, now and later: for a program that stops.
  void cancel();

  const std::vector<std::string>& urls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
