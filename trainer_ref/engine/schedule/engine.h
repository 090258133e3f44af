// The engine: a thread that steps as long as there is work (schedule, run, sample), and flips between two steps.
//
// If the runner runs ahead, the engine plans and starts the next step while the last one runs, so that the device does
// not wait for the host. The next step continues from tokens that only the device knows yet, so a sequence that ends
// with the last step is computed once too often. Both steps are completed before requests or weights change.
//
// While the engine is paused, it begins no requests. While it is asleep, it accepts no requests and holds no cache, so
// that others can use the memory; it continues to flip.
//
// Threads: all but start and stop may be called from any thread, and return at once. A callback is called once, on the
// engine's thread, and must return at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/engine/schedule/completion.h>
#include <bascule/trainer_ref/engine/schedule/loaded_adapters.h>
#include <bascule/trainer_ref/engine/schedule/scheduler.h>
#include <bascule/transport/deadline.h>

namespace bascule::ref {

// What happens to running requests when the weights change.
enum class OnUpdate {
  kKeep,   // they continue with the new weights; each token records which weights made it
  kAbort,  // they end with what they have and finish_reason "abort"
  kWait,   // the flip waits for them, and what has not begun waits for the flip
};

// What happens to running requests when the engine is paused.
enum class PauseMode {
  kAbort,  // they end with what they have and finish_reason "abort"
  kWait,   // they finish
  kKeep,   // they stop, and continue at resume()
};

struct EngineOptions {
  SchedulerLimits limits{};
  std::size_t blocks = 1024;       // of the cache
  std::size_t max_waiting = 4096;  // sequences that may wait beyond those that run
  OnUpdate on_update = OnUpdate::kKeep;
  // For kWait: how long the flip may wait, from the token boundary at which the engine sees a pending version. Requests
  // still running when the time is up continue as under kKeep. Set it at least four steps' time below the sender's
  // flip_timeout, or the sender may evict the engine: two steps may be in progress when the version is seen, and two
  // when the time is up.
  absl::Duration wait_at_most = absl::Seconds(3);
  std::function<void(std::string_view)> log = [](std::string_view) {};
  // Gets the reason why no sender is joined, or why a version cannot be served: each reason once, until a sender is
  // joined again. Called on the engine's thread.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
};

class Engine {
 public:
  using Done = std::function<void(Completion)>;

  explicit Engine(EngineOptions options);
  ~Engine();  // stops

  // Starts the thread, and returns once it has looked for weights: a checkpoint's weights are served by then. Call it
  // once.
  void start(std::unique_ptr<Runner> runner);
  // Ends the thread after the current step. What still runs is dropped; no `done` is called or kept.
  void stop();

  // Returns UNAVAILABLE if no version of the model or the adapter is served yet, NOT_FOUND if the adapter is gone,
  // RESOURCE_EXHAUSTED if too many sequences wait. An accepted request also ends with UNAVAILABLE if the served version
  // must no longer be used.
  absl::StatusOr<RequestId> submit(CompletionRequest request, Done done);
  void cancel(RequestId request);  // frees its place; its `done` may still be called if it ended meanwhile
  void abort_all();                // ends every request with what it has and finish_reason "abort"
  void wake();                     // a version is pending: an idle engine commits now

  // Accepts no new requests, and frees the cache once all running and waiting ones have ended. With `abort`, ends them
  // now, with what they have. Then calls `done`, with ABORTED if wake_up() came first.
  using Told = std::function<void(const absl::Status&)>;
  void sleep(bool abort, Told done);
  // Allocates the cache and accepts requests again. If there is too little memory, reports UNAVAILABLE and stays
  // asleep. Ends a pause.
  void wake_up(Told done);

  // Takes requests, but begins none until resume(); flips go on. Calls `done` once nothing runs, with ABORTED if the
  // pause ended before: by resume(), wake_up() or sleep(). `clear_cache` then also does what reset_cache() does, except
  // with kKeep. A second call changes the mode.
  void pause(PauseMode mode, bool clear_cache, Told done);
  void resume(Told done);
  // Lets no later request find what was computed before. With `recompute`, running ones also compute theirs anew.
  void reset_cache(bool recompute, Told done);

  // Serves an adapter under a name. Calls `done` with OK once it is listed: its first version may still have to come
  // (AdapterEntry::served). With `in_place`, an adapter of that name gets the new weights as soon as they can be
  // served, and its requests continue with them; else ALREADY_EXISTS. Also returns the errors of Runner::set_adapter().
  void load_adapter(AdapterEntry entry, bool in_place, std::unique_ptr<AdapterWeights> weights, Told done);
  // Stops taking requests for an adapter; running ones end with it, and then it is removed. NOT_FOUND if there is
  // none.
  // With `only`, also NOT_FOUND if another adapter has the name by now.
  void unload_adapter(std::string name, Told done, AdapterId only = kNoAdapter);
  AdapterDirectory& adapters() { return adapters_.directory(); }

  EngineStats stats() const;

  // A commit sends the ack before submit() and stats() know the version. But a client that knows of the ack must find
  // the version served. So the server first waits, for a bounded time, until as many commits have ended as had begun
  // when the request came. A commit takes microseconds, but with a single copy as long as the trainer writes it.
  std::uint64_t commits_begun() const;
  std::uint64_t commits_ended() const;
  const EngineOptions& options() const { return options_; }

 private:
  struct Submitted {
    RequestId id;
    std::unique_ptr<CompletionRequest> request;
    Done done;
  };
  struct Cancelled {
    RequestId id;
  };
  struct AbortAll {};
  struct Sleep {
    bool abort;
    Told done;
  };
  struct WakeUp {
    std::uint64_t sleeps;  // calls of sleep() before it
    Told done;
  };
  struct Pause {
    PauseMode mode;
    bool clear_cache;
    std::vector<Told> asked;  // and not told yet that nothing runs
  };
  struct Resume {
    Told done;
  };
  struct ResetCache {
    bool recompute;
    Told done;
  };
  struct LoadAdapter {
    AdapterEntry entry;
    bool in_place;
    std::unique_ptr<AdapterWeights> weights;
    Told done;
  };
  struct UnloadAdapter {
    std::string name;
    AdapterId only;
    Told done;
  };
  using Command = std::variant<Submitted, Cancelled, AbortAll, Sleep, WakeUp, Pause, Resume, ResetCache, LoadAdapter,
                               UnloadAdapter>;
  struct Pending {
    Done done;
    AdapterId adapter = kNoAdapter;
    std::size_t choices = 0;
    Scheduler::Sequences ended;
  };

  void loop();
  std::vector<Command> next_commands(bool busy);
  void obey(Submitted command);
  void obey(Cancelled command);
  void obey(AbortAll command);
  void obey(Sleep command);
  void obey(const WakeUp& command);
  void obey(Pause command);
  void obey(const Resume& command);
  void obey(const ResetCache& command);
  void obey(LoadAdapter command);
  void obey(const UnloadAdapter& command);
  void fall_asleep();
  void end_pause();
  void settle_pause();
  bool may_step() const;
  bool flip_waits();
  void flip();
  bool flip_adapters(double seconds);  // of the commit; whether it changed any
  void report_connection();
  void step();
  void complete(Step step);
  void complete_ahead();
  void step_failed(Step step, const absl::Status& why);
  void end(Scheduler::Sequences sequences);
  std::vector<RequestId> requests_of(AdapterId adapter) const;
  absl::Status check_adapter(AdapterId adapter) const;
  void abort(const std::vector<RequestId>& requests);
  void fail_all(const absl::Status& why);
  void fail(RequestId request, const absl::Status& why);
  void publish_stats();
  void send(Command command);

  const EngineOptions options_;
  std::unique_ptr<Runner> runner_;

  // The engine's thread alone.
  BlockPool pool_;
  Scheduler scheduler_;
  LoadedAdapters adapters_{scheduler_};
  std::map<RequestId, Pending> pending_;
  Served served_;
  EngineStats counted_;
  std::vector<std::string> reported_;         // reasons already given to warn
  std::optional<Clock::time_point> flip_by_;  // while a version waits for what has begun
  std::optional<Step> ahead_;                 // started and not completed
  bool asleep_ = false;                       // the cache is given back
  std::vector<Told> falling_asleep_;          // callers of sleep() that wait until it sleeps
  std::optional<Pause> pause_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> inbox_;  // guarded by mutex_, like all below
  bool woken_ = false;
  bool looked_ = false;
  std::uint64_t commits_begun_ = 0, commits_ended_ = 0;
  bool stopping_ = false;
  RequestId last_request_ = 0;
  std::size_t sequences_ = 0;  // submitted and not ended
  std::uint64_t rejected_ = 0;
  bool closed_ = false;       // nothing is taken: asleep, or about to be
  std::uint64_t sleeps_ = 0;  // how often sleep() was called
  EngineStats stats_;

  std::thread thread_;
};

}  // namespace bascule::ref
