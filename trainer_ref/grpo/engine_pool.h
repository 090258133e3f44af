// The engines that generate: requests are shared out among those that are up, and one that an engine loses is asked of
// another, once. One that no engine took, or that an engine lost that is started again, is asked until it is answered.
//
// Each engine has a few threads that take requests from one queue, each with a connection of its own, so a fast engine
// takes more of them. A thread whose engine is full pauses, and one whose engine fails waits until /health says that it
// serves again: an engine may be killed and started anew in the middle of a run, elsewhere, too.
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
  // Where an engine is now, if engines move; empty: nowhere, it is being started again. Any thread.
  std::function<std::string(std::size_t engine)> url_of = nullptr;
  std::string api_key = {};      // of the engines; empty: none
  int requests_per_engine = 16;  // under way at a time
  absl::Duration request_timeout = absl::Seconds(60);
  std::function<void(std::string_view)> log = [](std::string_view) {};  // lost requests, engines that came back
  std::function<bool()> stopped = [] { return false; };                 // true ends every wait within a second
};

// The answer to one request.
struct Generation {
  std::size_t request = 0;        // which of those that were asked
  std::vector<Rollout> rollouts;  // empty: lost twice, or refused
  std::size_t engine = 0;         // which of `urls` answered
  std::chrono::steady_clock::time_point began, ended;
};

// What engines take, all of them together.
struct EngineLimits {
  std::int64_t max_model_len = 0;    // tokens of a prompt and its completion
  std::int64_t max_completions = 0;  // of one prompt in one request
};

// What /health of each engine says, one after the other, two seconds each at most: "engine http://… says HTTP 503:
// joining, no sender has been at /tmp/run yet; engine …". For texts about engines that do not come.
std::string what_engines_say(const std::vector<std::string>& urls);

class EnginePool {
 public:
  explicit EnginePool(EnginePoolOptions options);
  ~EnginePool();

  // Blocks until every engine serves a version of the sender of this epoch and is connected to it, or until stopped.
  // FAILED_PRECONDITION names an engine that is connected to another sender, or two URLs of one worker;
  // DEADLINE_EXCEEDED the first engine that does not serve, and what it says.
  absl::Status wait_until_serving(std::uint64_t epoch, absl::Duration timeout);

  // By /v1/models. UNAVAILABLE names the engine that does not answer, or says no limits.
  absl::StatusOr<EngineLimits> limits();

  // For a trainer that shares a device with its engines: they give their caches back (POST /sleep), and take them again
  // (POST /wake_up). Blocks until each has answered, one after the other, at most the request timeout each; all are
  // asked. UNAVAILABLE names the first that did not do it, and what it says. One that sleeps already sleeps on. An
  // engine that is being started again is waited for, within that time.
  absl::Status sleep();
  absl::Status wake_up();

  // Asks all `requests`; answers come back in their order. Blocks as long as answers arrive, to this call or to
  // another, or an engine is being started again, and twice the request timeout beyond the last of either. A request
  // that an engine refuses is lost alone, and its words are logged. UNAVAILABLE: no request was answered at all.
  // CANCELLED: cancel(), or stopped.
  absl::StatusOr<std::vector<Generation>> generate(std::vector<RolloutRequest> requests);

  // Ends every call, now and later: for a program that stops.
  void cancel();

  // Where each engine is, or was last.
  std::vector<std::string> urls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
