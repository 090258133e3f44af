// The requests that wait for an engine, and which engine takes which.
//
// An engine takes a request while fewer completions than two of its batches are under way there: one that it makes, one
// that waits to take its places. Of several engines with room, the one with the least under way, as a share of its
// batch, takes the next request: so all of them end at about the same time.
//
//   up ──a request fails──▶ in doubt ──/health says that it serves──▶ up
//                              └───────/health says otherwise──▶ down ──it serves again──▶ up
//
// Only an engine that is up takes requests. The thread whose request put it in doubt looks after it.
//
// Threads: every call from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <bascule/trainer_ref/grpo/rollout/rollout_request.h>
#include <bascule/trainer_ref/grpo/rollout/use_meter.h>

namespace bascule::ref {

// The answer to one request.
struct Generation {
  std::size_t request = 0;             // which of those that were asked
  std::vector<Rollout> rollouts = {};  // empty: lost twice, or refused
  std::size_t engine = 0;              // which of the engines answered
  std::chrono::steady_clock::time_point began = {}, ended = {};
};

class RequestQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Requests that are asked together. The threads that still ask for one keep it alive after its caller gave up.
  struct Call {
    std::vector<RolloutRequest> requests;
    std::vector<Generation> answers;
    std::size_t open = 0;   // requests without an answer that may still get one
    std::string last_loss;  // why the last request was lost
  };

  struct Job {
    std::shared_ptr<Call> call;
    std::size_t request = 0;
    std::optional<std::size_t> lost_by = {};  // the engine that it goes back to only where no other is up
    bool was_lost = false;                    // by an engine that may live: what it asks may be the reason

    const RolloutRequest& asks() const { return call->requests[request]; }
  };

  enum class Outcome {
    kAnswered,
    kUnreached,  // nobody took the request: it is as good as new
    kDied,       // the connection to an engine broke that is started again if it died
    kLost,
    kBusy,
    kRefused
  };
  // One try to have a request answered by an engine.
  struct Attempt {
    Outcome outcome = Outcome::kLost;
    std::string url = {}, why = {};  // where it was, and why it did not answer
    Generation answer = {};
  };

  // `log`: lost requests.
  RequestQueue(std::size_t engines, std::int64_t batch, std::function<void(const std::string&)> log);

  void set_batch(std::size_t engine, std::int64_t completions);

  enum class Place { kFirst, kLast };
  std::shared_ptr<Call> add(std::vector<RolloutRequest> requests, Place place = Place::kLast);
  // Blocks until every request of `call` is settled, until `time`, or cancelled; whether it need not wait on.
  bool wait(const Call& call, Time time);
  std::size_t answered(const Call& call) const;
  // Takes what still waits out of the queue, and says how many requests have no answer; threads that are asking for one
  // see that it is over.
  std::size_t close(const std::shared_ptr<Call>& call);

  // The next request for this engine, once it may take one. None: cancelled.
  std::optional<Job> take(std::size_t engine);
  // True: the engine is in doubt since, and the caller has to look after it.
  bool settle(std::size_t engine, Job job, Attempt attempt);
  // What /health said of an engine that is looked after. True: that is news.
  bool set_up(std::size_t engine, bool up);

  // Blocks until no request waits for an engine, or cancelled.
  void wait_until_taken();
  // Blocks for that long, or until cancelled; whether it was.
  bool pause(std::chrono::nanoseconds time);
  Time last_answer() const;  // to any call
  std::vector<EngineUse> use();

  void cancel();  // ends every wait, now and later
  bool is_cancelled() const;

 private:
  enum class State { kUp, kInDoubt, kDown };
  struct Engine {
    std::int64_t batch = 1;      // completions
    std::int64_t under_way = 0;  // likewise
    State state = State::kUp;
  };

  bool has_room(const Engine& engine) const;
  bool is_next(const Engine& engine) const;
  bool another_is_up(std::size_t engine) const;
  void lose(Job& job, const std::string& why);

  const std::function<void(const std::string&)> log_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Engine> engines_;
  std::list<Job> jobs_;  // in the order in which they were asked; what was lost comes first
  Time last_answer_ = {};
  UseMeter meter_;
  bool cancelled_ = false;
};

}  // namespace bascule::ref
