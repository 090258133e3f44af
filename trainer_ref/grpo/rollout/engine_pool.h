// The engines that generate: requests are shared out among those that are up, as many to each as its batch takes, and
// one that an engine loses is asked of another, once. One that no engine took, or that an engine lost that is started
// again, is asked until it is answered.
//
// Each engine has threads that take requests from one queue (request_queue.h), each with a connection of its own: one
// more than requests were ever under way there. An engine may be killed and started anew in the middle of a run,
// elsewhere, too.
//
// Threads: every call from any thread. Destruction cancels what is under way.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/grpo/rollout/engine_probe.h>
#include <bascule/trainer_ref/grpo/rollout/request_queue.h>
#include <bascule/trainer_ref/grpo/rollout/rollout_request.h>

namespace bascule::ref {

struct EnginePoolOptions {
  std::vector<std::string> urls;  // "http://127.0.0.1:8001"
  // Where an engine is now, if engines move; empty: nowhere, it is being started again. Any thread.
  std::function<std::string(std::size_t engine)> url_of = nullptr;
  std::string api_key = {};  // of the engines; empty: none
  std::int64_t batch = 16;   // completions that an engine makes at a time, until limits() has asked it
  absl::Duration request_timeout = absl::Seconds(60);
  std::function<void(std::string_view)> log = [](std::string_view) {};  // lost requests, engines that came back
  std::function<bool()> stopped = [] { return false; };                 // true ends every wait within a second
};

class EnginePool {
 public:
  explicit EnginePool(EnginePoolOptions options);
  ~EnginePool();

  // Blocks until every engine serves a version of the sender of this epoch and is connected to it, or until stopped.
  // FAILED_PRECONDITION names an engine that is connected to another sender, or two URLs of one worker;
  // DEADLINE_EXCEEDED the first engine that does not serve, and what it says.
  absl::Status wait_until_serving(std::uint64_t epoch, absl::Duration timeout);

  // Those of the smallest engine, each limit by itself; what is asked of an engine from now on fits its batch.
  // UNAVAILABLE names the engine that does not answer, or says no limits.
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
  absl::StatusOr<std::vector<Generation>> generate(std::vector<RolloutRequest> requests) {
    return answers_to(ask(std::move(requests)));
  }
  // Its two halves: the requests wait for engines, and the call does not; the answers, once.
  std::shared_ptr<RequestQueue::Call> ask(std::vector<RolloutRequest> requests);
  std::shared_ptr<RequestQueue::Call> ask_first(std::vector<RolloutRequest> requests);  // before what waits already
  absl::StatusOr<std::vector<Generation>> answers_to(const std::shared_ptr<RequestQueue::Call>& call);

  // Blocks until no request waits for a place in an engine, or cancel().
  void wait_until_taken();

  // Ends every call, now and later: for a program that stops.
  void cancel();

  // How each engine was used so far.
  std::vector<EngineUse> use();

  // Where each engine is, or was last.
  std::vector<std::string> urls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
