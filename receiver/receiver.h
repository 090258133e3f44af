// Receiver: the engine's end. It prepares new versions in the background and flips to them at a token
// boundary.
//
// Threads: connect() starts an I/O thread, which never touches weights, and a prepare thread, which maps and verifies.
// All calls but status() belong to the engine's own thread. The I/O thread calls `on_pending`. fork: a child must not
// use the object; a child that lives on keeps this process's leases (it may still read). Destruction ends the leases:
// use no view after it. It waits until the engine's stream has done the work queued on it, for the endpoint's
// flip_timeout at most; what that stream may still read then stays mapped, and leased, as long as the process lives.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/receiver/options.h>
#include <bascule/receiver/receiver_status.h>
#include <bascule/receiver/weights.h>
#include <bascule/transport/target.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

// What commit() did.
struct Flip {
  bool changed = false;
  Epoch epoch = 0;
  Version version = 0;    // served from now on; 0 before the first, and after a copy that failed
  SlotId slot;            // where its weights lie: a slot or, in a receiver that copies, a set of its own tensors
  bool poisoned = false;  // what is served must not be used until the next flip; status() says why. For good if this
                          // process has lost its device
};

class Receiver {
 public:
  // Checks its arguments and returns, also without a sender. It greets its sender, or looks for one, from join() on, or
  // the first wait_ready(), take() or commit(). RESOURCE_EXHAUSTED: no thread can be started; the text names the
  // limits.
  static absl::StatusOr<Receiver> connect(ReceiverOptions options);

  Receiver(Receiver&&) noexcept;
  Receiver& operator=(Receiver&&) noexcept;
  ~Receiver();

  // From now on copies versions into tensors of the engine's own, instead of reading in place. `targets` say how these
  // are made of the sender's tensors (transport/target.h); their memory must outlive the receiver. With Apply::kCommit
  // they hold the version that is served, from the flip on. With Apply::kBackground a second set is allocated here, and
  // versions go to the two sets in turn, to the second set first; weights(flip.slot) is the set to read. The set that
  // is not served may be written at any time. Call it before join(), or the first wait_ready() or commit(), and once;
  // otherwise it returns FAILED_PRECONDITION. INVALID_ARGUMENT names the target, also if its memory is not the
  // device's. Whether the targets fit the sender's tensors is known once there is a sender: wait_ready() says.
  absl::Status register_model(std::vector<TargetTensor> targets, ModelOptions options = {});

  // Greets its sender from now on, and returns at once: wait_for_workers() sees this worker before its first commit().
  // Whether it reads in place or copies is told in the greeting: register_model() comes before it.
  void join();

  // Blocks until a version is served, or is ready: commit() will flip to it. DEADLINE_EXCEEDED says how far the worker
  // came. FAILED_PRECONDITION says why the worker was refused, as when the sender's model and its own differ; the
  // receiver keeps looking, since another sender may come.
  absl::Status wait_ready(absl::Duration timeout);
  // The same of a version from `least` on: of the one that a trainer's message names, or a newer one. In a follower it
  // says that commit(least) need not wait.
  absl::Status wait_ready(Version least, absl::Duration timeout);

  // At a token boundary: one atomic load when nothing is pending, a flip when a version is. After a flip the slot
  // served before may be overwritten: use no view of it any more. A follower (rank > 0) never flips by this call.
  //
  // Does not block, except with slots=1: there it waits while the trainer writes, until the sender publishes, aborts
  // (at the latest after `loan_timeout`) or falls silent. If the slot may be half written, the worker is poisoned until
  // a flip. If nothing was written after all, it serves the same version again, and `changed` and `poisoned` are both
  // false.
  //
  // With Apply::kCommit the flip is the copy. If the copy fails, the tensors hold no version at all, and the worker is
  // poisoned until a flip succeeds.
  Flip commit();

  // In a follower: flips to the version that rank 0's commit() returned, which travels with the engine's step message.
  // Blocks until that version is prepared here, under flip_timeout; if it is not prepared by then, this worker, and
  // with it its group, is poisoned. In any other worker: as commit().
  Flip commit(Version version);

  // Whether commit() has work: a flip or, with slots=1, a wait for the trainer. One atomic load, which changes nothing.
  // For an engine that lets its requests end before it commits; it must commit within flip_timeout, or the sender
  // evicts it. True also while the worker is poisoned; in a follower, only then.
  bool pending() const;

  // An eventfd that is readable when commit() may have work, for poll(), epoll or an event loop; each commit() or
  // take() reads it empty. Close-on-exec; it is the receiver's. An error: there are no descriptors left.
  absl::StatusOr<int> pending_fd();

  // commit() in two halves, for an engine that makes its own weights of a version (a loader, a layout of its own):
  // take() flips as commit() does, and finish() acknowledges, once the engine has loaded what weights(flip.slot)
  // showed; the sender's send returns no earlier. In between the worker is loading: the slot stays as it is, the sender
  // waits for `load_timeout` (2 min), not `flip_timeout`, and neither take() nor commit() flips again. Where `changed`
  // is false, there is nothing to load and to finish.
  //
  // An error: the engine's weights are of no version. The worker is poisoned until a flip, as behind a copy that
  // failed, and the sender brings it the newest version again. finish() without a take() does nothing.
  Flip take();
  Flip take(Version version);
  void finish(const absl::Status& loaded = absl::OkStatus());

  // Views into the slot itself, or the set. They do not move while it lives: a SlotId always has the same views.
  const Weights& weights(SlotId slot) const;
  // Keeps the memory of weights(slot) of the version that is served where it is, as long as the pointer lives, also
  // behind the receiver: for a language in which anybody may hold a tensor. A later version may be written there; names
  // and shapes of the views go with the slot. Null: another slot, or the engine's own tensors.
  std::shared_ptr<const void> keep(SlotId slot) const;

  ReceiverStatus status() const;

 private:
  struct Impl;
  struct End {
    void operator()(Impl*) const;
  };
  explicit Receiver(Impl*);
  std::unique_ptr<Impl, End> impl_;
};

}  // namespace bascule::inline v0
