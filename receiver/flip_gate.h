// FlipGate: the I/O thread leaves a decided version here, and the engine's thread takes it at a token boundary. The
// engine's thread also waits here in two cases, each with a deadline: while a single copy is written, and, in a
// follower, for a version that rank 0 already serves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/receiver/local_version.h>
#include <bascule/receiver/pending_bell.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

class FlipGate {
 public:
  // ---- I/O thread ----

  // Call it when the sender has decided `local`. Returns the version decided before it, if no commit() took that one.
  std::optional<LocalVersion> decide(LocalVersion local);
  // Call it before `slot`, which the engine reads, or will read once it has taken what was decided, is written. The
  // engine's thread calls `yielded` from inside commit() and waits there until decide(), resume(), poison() or spoil().
  void ask_to_yield(SlotId slot, std::function<void()> yielded);
  void resume();  // call it if the sender has not written there
  // Like poison(), for a sender that may have written there. Returns the decided version in that slot that no commit()
  // took, if any. Any thread may call it.
  std::optional<LocalVersion> spoil();
  // Call it if the served version must not be used: commit() reports it as poisoned until the next flip. Any thread.
  void poison();
  // Poisons permanently: the gate hands over no further version. Any thread.
  void lose();

  // In a follower: add and remove versions that rank 0 may flip to.
  void offer(LocalVersion local);
  bool withdraw(Version version);  // returns false if it was taken, or not offered

  // ---- engine's thread ----

  // Call it at every token boundary; it costs one atomic load.
  bool pending() const { return pending_.load(std::memory_order_acquire); }
  absl::StatusOr<int> descriptor();  // an eventfd that is readable while pending(), and before begin()
  void begin();                      // the engine has made its first call
  void set_loading(bool loading);    // nothing is pending while the engine loads a version
  // Call it if pending(). While a single copy is written it waits for the sender to publish or abort, or to be given
  // up, until `deadline`. `late` becomes true if none of these came: call spoil() before anything else.
  std::optional<LocalVersion> take(Deadline deadline, bool& late);
  bool poisoned() const;  // call it if pending()

  // In a follower: waits until `deadline` for `version` to be offered, and returns it; lower offered versions go to
  // `dropped`. Returns nullopt if it was not offered in time. `interrupted`, if given, is called every 50 ms, without
  // the mutex; if it returns true, the wait ends.
  std::optional<LocalVersion> take(Version version, Deadline deadline, std::vector<LocalVersion>& dropped,
                                   const std::function<bool()>& interrupted = {});

 private:
  void set_pending();  // mutex held, as for the next one
  void let_go();       // lets an engine that has yielded go on

  std::atomic<bool> pending_{false};  // release by the I/O thread pairs with the acquire in pending()
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PendingBell bell_;
  std::optional<LocalVersion> decided_;
  std::function<void()> yielded_;  // the yield that is requested, and not done yet
  SlotId asked_for_;               // the slot for which a yield was requested last
  bool waiting_ = false;           // the engine's thread has yielded
  bool poisoned_ = false;
  bool lost_ = false;
  bool begun_ = false, loading_ = false;
  std::map<Version, LocalVersion> offered_;
};

}  // namespace bascule::inline v0
