// FlipGate: where the I/O thread leaves a decided version and the engine's thread takes it at a token
// boundary. Also where the engine's thread waits, when it must: beside a single copy that is being written, and in a
// follower for a version that rank 0 already serves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "receiver/attachment.h"
#include "transport/deadline.h"
#include "transport/version.h"

namespace bascule {

// What the engine's thread copies before it may serve a version.
struct CopyAtFlip {
  Publication publication;
  SlotView view;
  bool check = false;  // make the digest in the same pass
};

// A version that may be served.
struct Target {
  std::shared_ptr<Attachment> attachment;  // keeps it mapped, and the lease; none once all of it was copied
  Version version = 0;
  SlotId slot{};   // that the engine reads; of one that copies: a set of its own tensors
  SlotId lease{};  // the sender's slot that it came by: the same, unless the memory is the scheme's own here, or a set
  std::shared_ptr<const Weights> weights{};
  std::optional<CopyAtFlip> copy{};
  Clock::time_point decided_at{};

  int device = kHost;  // of the memory that the engine reads

  SlotId source() const { return copy ? copy->view.slot : slot; }  // what the attachment is to let go of
};

class FlipGate {
 public:
  // ---- I/O thread ----

  // The sender told us to commit. Returns the version decided before it that no commit() took, if any.
  std::optional<Target> decide(Target target);
  // The slot that is served is about to be written. The engine's thread calls `stepped_aside` from inside commit() and
  // waits there until decide(), resume() or poison().
  void ask_to_step_aside(std::function<void()> stepped_aside);
  void resume();
  // What is served must not be used: commit() says so until the next flip.
  void poison();

  // Of a follower: versions that rank 0 may flip to.
  void offer(Target target);
  bool withdraw(Version version);  // false: it was taken, or not offered

  // ---- engine's thread ----

  // At every token boundary: one load.
  bool pending() const { return pending_.load(std::memory_order_acquire); }
  // When pending() said so. May wait beside a single copy: until the sender publishes, aborts or is given up.
  std::optional<Target> take();
  bool poisoned() const;  // when pending() said so

  // Of a follower: the offered version, awaited until `deadline`, and those below it, which are dropped. None: it did
  // not come.
  std::optional<Target> take(Version version, Deadline deadline, std::vector<Target>& dropped);

 private:
  void set_pending();  // under the mutex

  std::atomic<bool> pending_{false};  // release by the I/O thread pairs with the acquire in pending()
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Target> decided_;
  std::function<void()> stepped_aside_;  // asked for, and not done yet
  bool waiting_ = false;                 // the engine's thread stands aside
  bool poisoned_ = false;
  std::map<Version, Target> offered_;
};

}  // namespace bascule
