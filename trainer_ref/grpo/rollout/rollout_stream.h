// Rollouts generated while the trainer trains: requests for the next steps start as far ahead as the allowed staleness
// permits. A step's requests do not wait for the slowest completion of the previous step: they start as soon as engines
// have room.
//
//   published()  ──▶ may s be requested?  ──▶ does no request wait for a place? ──▶ ask(s) ──▶ next()
//                    max_staleness             the engines' batches
//
// Threads: call next() and published() from the trainer's thread. One more thread sends each step's requests, and each
// step in flight has a thread that collects its answers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>

namespace bascule::ref {

// When versions are published, and how old rollouts may be.
struct Schedule {
  std::int64_t first_step = 1, last_step = 0;  // of this run, inclusive
  std::int64_t sync_every = 1;                 // a version follows each step that is a multiple of it
  std::int64_t max_staleness = 0;              // versions that may be published between a rollout and its use

  // How many versions this run has published when it trains `step`: one before its first step, and one after each
  // multiple of sync_every since.
  std::int64_t published_before(std::int64_t step) const {
    return 1 + (step - 1) / sync_every - (first_step - 1) / sync_every;
  }
};

class RolloutStream {
 public:
  struct Step {
    std::vector<RolloutRequest> requests;
    std::vector<Generation> generations;  // possibly several per request
  };
  using Answers = absl::StatusOr<Step>;
  using RequestsOf = std::function<std::vector<RolloutRequest>(std::int64_t step)>;  // called on the stream's thread

  // `pool` must outlive this object. Requests nothing before the first published().
  RolloutStream(EnginePool& pool, const Schedule& schedule, RequestsOf requests_of);
  ~RolloutStream();  // cancels the pool, whose open requests are no longer useful

  // Call this when the engines serve one more version.
  void published();

  // Returns the requests and rollouts of the next step, starting with first_step. Requests that were lost, or cut short
  // by a new version, have been repeated. Blocks like EnginePool::generate(), and returns its errors.
  Answers next();

 private:
  void run(const RequestsOf& requests_of);
  std::future<Answers> begin(std::vector<RolloutRequest> requests, std::shared_ptr<RequestQueue::Call> asked);
  Answers collect(std::vector<RolloutRequest> requests, const std::shared_ptr<RequestQueue::Call>& asked);

  EnginePool& pool_;
  const Schedule schedule_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t published_ = 0;
  bool stopping_ = false;
  std::deque<std::future<Answers>> under_way_;  // in the order of steps
  std::jthread thread_;
};

}  // namespace bascule::ref
