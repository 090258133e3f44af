// Receiver: the engine's end. It prepares new versions in the background and flips to them at a token
// boundary.
//
// Threads: all receivers of a process share an I/O thread, which never touches weights, and up to four threads that map
// and verify; connect() starts what is missing, and the last receiver ends them. A callback that takes long holds up
// every receiver. All calls but status() belong to the engine's own thread. The I/O thread calls `on_pending`. After a
// fork, the child must not use the object, but may make its own; this process's leases last as long as the child lives,
// since the child may still read. Destruction ends the leases: use no view after it. It first waits, for at most the
// endpoint's flip_timeout, until the engine's stream has done the work queued on it. Memory that the stream may still
// read after that time stays mapped and leased until the process ends. If memory runs out, a call returns
// RESOURCE_EXHAUSTED or throws std::bad_alloc, and the object stays usable; a flip that has begun waits for memory
// instead. The shared threads then end the connection at most; it greets again, and goes on serving.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/receiver/options.h>
#include <bascule/receiver/receiver_status.h>
#include <bascule/receiver/weights.h>
#include <bascule/transport/held_version.h>
#include <bascule/transport/target.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

// What commit() did.
struct Flip {
  bool changed = false;
  Epoch epoch = 0;
  Version version = 0;    // the version that is served now; 0 before the first one, and after a failed copy
  SlotId slot;            // where its weights lie: a slot or, in a receiver that copies, one of its sets of tensors
  bool poisoned = false;  // the weights must not be used until the next flip; status() says why. Permanent if this
                          // process has lost its device
};

class Receiver {
 public:
  // Checks its arguments and returns, even if there is no sender. The receiver begins to look for a sender and greets
  // it at join(), or at the first wait_ready(), take() or commit(). Returns RESOURCE_EXHAUSTED if no thread can be
  // started; the text names the limits.
  static absl::StatusOr<Receiver> connect(ReceiverOptions options);

  Receiver(Receiver&&) noexcept;
  Receiver& operator=(Receiver&&) noexcept;
  ~Receiver();

  // Makes the receiver copy versions into the engine's own tensors, instead of reading in place. `targets` define how
  // the engine's tensors are made from the sender's (transport/target.h); their memory must outlive the receiver. With
  // Apply::kCommit each flip copies the new version into them. With Apply::kBackground a second set is allocated here,
  // and versions go to the two sets in turn, to the second set first; weights(flip.slot) is the set to read. The set
  // that is not served may be written at any time. Call it once, before join() or the first wait_ready(), take() or
  // commit(); otherwise it returns FAILED_PRECONDITION. It returns INVALID_ARGUMENT, naming the target, if for example
  // the memory is not the device's. Whether the targets fit the sender's tensors is known once there is a sender:
  // wait_ready() reports it.
  absl::Status register_model(std::vector<TargetTensor> targets, ModelOptions options = {});

  // Starts to greet the sender and returns at once, so that the sender's wait_for_workers() sees this worker before its
  // first commit(). Call register_model() first: the greeting tells the sender whether this worker copies.
  void join();

  // Blocks until a version is served, or is ready, so that commit() will flip to it. DEADLINE_EXCEEDED says how far the
  // worker got. FAILED_PRECONDITION says why the sender refused this worker, for example because their models differ;
  // the receiver keeps looking, since another sender may come.
  absl::Status wait_ready(absl::Duration timeout);
  // Like the call above, but for version `least` or a newer one, if a trainer's message names the version to wait for.
  // In a follower, OK means that commit(least) need not wait if rank 0 flipped to `least`, or if this follower serves
  // `least` or a newer version already.
  absl::Status wait_ready(Version least, absl::Duration timeout);

  // Call it at each token boundary. It flips if a version is pending; otherwise it costs one atomic load. After a flip
  // the previously served slot may be overwritten: stop using views of it. A follower (rank > 0) never flips by this
  // call.
  //
  // Does not block, except with slots=1: then it waits while the trainer writes, until the sender publishes, aborts
  // (after `loan_timeout` at the latest), begins another version, hangs up or falls silent. After twice `timeout` plus
  // `loan_timeout` of this receiver's own URL (90 s by default) it gives up the sender, whatever that sends. If the
  // slot may be half written, the worker is poisoned until a flip. If nothing was written after all, it serves the same
  // version again, and `changed` and `poisoned` are both false.
  //
  // With Apply::kCommit the flip is the copy. If the copy fails, the tensors hold no whole version, and the worker is
  // poisoned until a flip succeeds.
  Flip commit();

  // In a follower: flips to the version that rank 0's commit() returned; the engine passes it on with its step message.
  // Returns at once, and changes nothing, if the follower serves that version or a newer one: numbers only rise.
  // Blocks until that version is prepared here, for at most flip_timeout; if it is not prepared by then, this worker
  // and its group are poisoned. In any other worker it is the same as commit().
  Flip commit(Version version);

  // Returns whether commit() has work: a flip or, with slots=1, a wait for the trainer. It is one atomic load and
  // changes nothing. It is for an engine that finishes its requests before it commits; the engine must commit within
  // flip_timeout, or the sender evicts it. Also returns true while the worker is poisoned; a follower's pending() is
  // true only then. Returns false between take() and finish().
  bool pending() const;

  // Returns an eventfd for poll(), epoll or an event loop. It is readable while pending() returns true, which includes
  // all the time that the worker is poisoned: an event loop should pause between two commits then. It may become
  // readable a moment before pending() returns true; another edge follows then. It is also readable until join() or the
  // first call that greets. Only poll it; do not read it. It is close-on-exec and belongs to the receiver. Returns an
  // error if no descriptors are left.
  absl::StatusOr<int> pending_fd();

  // commit() in two halves, for an engine with its own loader or layout. take() flips like commit(). After the engine
  // has loaded weights(flip.slot), finish() acknowledges the version; the sender's send() returns only after that. In
  // between the worker is loading: the slot stays as it is, the sender waits for `load_timeout` (2 min) instead of
  // `flip_timeout`, and neither take() nor commit() flips again. If `changed` is false, there is nothing to load or
  // finish.
  //
  // Pass an error to finish() if the engine's weights now belong to no version. The worker is then poisoned until a
  // flip, as after a failed copy, and the sender brings it the newest version again. finish() without a take() does
  // nothing.
  Flip take();
  Flip take(Version version);
  void finish(const absl::Status& loaded = absl::OkStatus());

  // Returns views into the slot or set itself. While the slot or set lives, its views do not move: a SlotId always has
  // the same views.
  const Weights& weights(SlotId slot) const;
  // Returns the description that came with the served version's tensors (Sender::register_model). Empty if there is
  // none, or no version is served.
  std::string description() const;
  // Keeps the memory of weights(slot) mapped as long as the returned pointer lives, even after the receiver is gone. It
  // is for languages such as Python, in which a tensor may outlive the receiver. The pointer keeps only the memory, not
  // its content: a later version may be written there. The names and shapes in the views are not kept beyond the slot.
  // Returns null if `slot` is not the served one, or if it is a set of the engine's own tensors.
  std::shared_ptr<const void> keep(SlotId slot) const;

  // Returns the served version of a sender that has SenderOptions::held, so that this process can hand the memory on to
  // another such sender once that one is gone (Sender::adopt()). The memory stays mapped as long as the result's
  // `memory` lives. FAILED_PRECONDITION: no version is served, or it is not read in place; UNIMPLEMENTED: the scheme
  // cannot hand memory on.
  absl::StatusOr<HeldVersion> held() const;

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
