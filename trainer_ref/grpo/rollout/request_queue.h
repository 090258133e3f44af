// The queue of requests, from which engines take them.
//
// An engine takes requests until the completions in flight there fill two of its batches: one batch that it generates,
// and one that waits. Of several engines with room, the one with the least in flight, as a share of its batch, takes
// the next request, so that all of them end at about the same time.
//
//   up ──a request fails──▶ in doubt ──/health says that it serves──▶ up
//                              └───────/health says otherwise──▶ down ──it serves again──▶ up
//
// Only an engine that is up takes requests. The thread whose request put it in doubt probes it until it is up.
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
  std::size_t request = 0;             // its index among the call's requests
  std::vector<Rollout> rollouts = {};  // empty: lost twice, or refused
  std::size_t engine = 0;              // the index of the engine that answered
  std::chrono::steady_clock::time_point began = {}, ended = {};
};

class RequestQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Requests that were added together. If the caller gives up, the Call stays alive until no thread is sending any of
  // its requests.
  struct Call {
    std::vector<RolloutRequest> requests;
    std::vector<Generation> answers;
    std::size_t open = 0;   // requests without an answer that may still get one
    std::string last_loss;  // why the last request was lost
  };

  struct Job {
    std::shared_ptr<Call> call;
    std::size_t request = 0;
    std::optional<std::size_t> lost_by = {};  // the engine that lost it, which gets it again only if no other is up
    bool was_lost = false;                    // by an engine that may be alive, so the request itself may be the cause

    const RolloutRequest& asks() const { return call->requests[request]; }
  };

  enum class Outcome {
    kAnswered,
    kUnreached,  // no engine received the request, so it is queued as if new
    kDied,       // the connection broke, and the engine is restarted if it has died
    kLost,
    kBusy,
    kRefused
  };
  // One attempt to have a request answered by an engine.
  struct Attempt {
    Outcome outcome = Outcome::kLost;
    std::string url = {}, why = {};  // the engine's URL, and why it did not answer
    Generation answer = {};
  };

  // `log` gets lost requests.
  RequestQueue(std::size_t engines, std::int64_t batch, std::function<void(const std::string&)> log);

  void set_batch(std::size_t engine, std::int64_t completions);

  enum class Place { kFirst, kLast };
  std::shared_ptr<Call> add(std::vector<RolloutRequest> requests, Place place = Place::kLast);
  // Blocks until every request of `call` is settled, until `time`, or until cancelled. Returns false at `time`.
  bool wait(const Call& call, Time time);
  std::size_t answered(const Call& call) const;
  // Removes the call's requests from the queue, and returns how many have no answer. Answers that arrive later are
  // ignored.
  std::size_t close(const std::shared_ptr<Call>& call);

  // Blocks until this engine may take a request, and returns it; nullopt if cancelled.
  std::optional<Job> take(std::size_t engine);
  // Records the attempt. Returns true if it put the engine in doubt: the caller must then probe it until it is up.
  bool settle(std::size_t engine, Job job, Attempt attempt);
  // Sets the state of an engine that is in doubt or down, from its /health. Returns true if the engine goes down, or is
  // up again after it was down.
  bool set_up(std::size_t engine, bool up);

  // Blocks until no request waits for an engine, or until cancelled.
  void wait_until_taken();
  // Blocks for `time`, or until cancelled. Returns whether it was cancelled.
  bool pause(std::chrono::nanoseconds time);
  Time last_answer() const;  // when the last answer to any call came
  std::vector<EngineUse> use();

  void cancel();  // ends every wait, now and later
  bool is_cancelled() const;

 private:
  enum class State { kUp, kInDoubt, kDown };
  struct Engine {
    std::int64_t batch = 1;      // completions
    std::int64_t under_way = 0;  // completions in flight
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
  std::list<Job> jobs_;  // in the order of add(); lost ones come first
  Time last_answer_ = {};
  UseMeter meter_;
  bool cancelled_ = false;
};

}  // namespace bascule::ref
