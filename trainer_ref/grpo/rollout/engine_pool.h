// The engines that generate: requests are distributed over the engines that are up, in proportion to their batches. A
// request that an engine loses is retried once on another. A request that no engine accepted, or that was lost by an
// engine that is now being restarted, is retried until it is answered.
//
// Each engine has its own threads, which take requests from one common queue (request_queue.h). Each thread has a
// connection. An engine has one thread more than the most requests that were ever in flight there. An engine may be
// killed and restarted in the middle of a run, even at another URL.
//
// Threads: every call from any thread. Destruction cancels all requests.
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
  // Returns an engine's current URL, if engines move; empty while it is restarted. Called on any thread.
  std::function<std::string(std::size_t engine)> url_of = nullptr;
  std::string api_key = {};                     // of the engines; empty: none
  std::string model = {};                       // the name of the adapter that generates; empty: the engines' own model
  std::string flag = "the --sync of this run";  // of engines, by which they follow this run
  bool needs_active = false;                    // other clients must get this adapter although they name none
  std::int64_t batch = 16;                      // completions that an engine makes at a time, until limits() has set it
  absl::Duration request_timeout = absl::Seconds(60);
  std::function<void(std::string_view)> log = [](std::string_view) {};  // lost requests, engines that came back
  std::function<bool()> stopped = [] { return false; };                 // if true, every wait ends within a second
};

class EnginePool {
 public:
  explicit EnginePool(EnginePoolOptions options);
  ~EnginePool();

  // Blocks until every engine is connected to the sender of `epoch` and serves one of its versions, or until stopped.
  // FAILED_PRECONDITION names an engine that is connected to another sender, or two URLs of one worker.
  // DEADLINE_EXCEEDED names the first engine that does not serve, and gives the reason.
  absl::Status wait_until_serving(std::uint64_t epoch, absl::Duration timeout);

  // Returns the smallest value of each limit over all engines. Later requests are distributed by the batches that the
  // engines report. UNAVAILABLE names an engine that does not answer or reports no limits.
  absl::StatusOr<EngineLimits> limits();

  // For a trainer that shares a device with its engines: sleep() makes them free their caches (POST /sleep), wake_up()
  // makes them allocate the caches again (POST /wake_up). Both call all engines one after the other, even if one fails,
  // and block for at most the request timeout per engine, which includes waiting for one that is restarting. An engine
  // that sleeps already stays asleep. UNAVAILABLE names the first engine that failed, and quotes its answer.
  absl::Status sleep();
  absl::Status wake_up();

  // Sends all `requests`, and returns the answers in their order. Blocks until all are answered; gives up once no
  // answer to any call has arrived, and no engine has been restarting, for twice the request timeout. If an engine
  // refuses a request, only that request is lost, and the reason is logged. Returns UNAVAILABLE if no request was
  // answered, and CANCELLED if cancel() was called or the run is stopped.
  absl::StatusOr<std::vector<Generation>> generate(std::vector<RolloutRequest> requests) {
    return answers_to(ask(std::move(requests)));
  }
  // The two halves of generate(). ask() queues the requests without blocking; answers_to() blocks as generate() does.
  // Call answers_to() once per call.
  std::shared_ptr<RequestQueue::Call> ask(std::vector<RolloutRequest> requests);
  std::shared_ptr<RequestQueue::Call> ask_first(std::vector<RolloutRequest> requests);  // before all waiting requests
  absl::StatusOr<std::vector<Generation>> answers_to(const std::shared_ptr<RequestQueue::Call>& call);

  // Sends `request` to every engine, one after the other, and returns each one's answer. Blocks for at most the request
  // timeout per engine, beside an answer that is under way. UNAVAILABLE names an engine that did not answer, and why.
  absl::StatusOr<std::vector<Generation>> ask_each(const RolloutRequest& request);

  // Blocks until no request waits for an engine, or until cancel().
  void wait_until_taken();

  // Call this when the program stops: it ends every current and later call.
  void cancel();

  // Each engine's use so far.
  std::vector<EngineUse> use();

  // Each engine's current or last URL.
  std::vector<std::string> urls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
