// Receiver: the engine's end. It prepares new versions in the background and flips to them at a token
// boundary.
//
// Threads: connect() starts an I/O thread, which never touches weights, and a prepare thread, which maps and verifies.
// All calls but status() belong to the engine's own thread. The I/O thread calls `on_pending`. fork: a child must not
// use the object; a child that lives on keeps this process's leases (it may still read). Destruction ends the leases:
// use no view after it. It waits until the engine's stream has done the work queued on it, for the endpoint's
// flip_timeout at most; what that stream may still read then stays mapped, and leased, as long as the process lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/transport/target.h>
#include <bascule/transport/tensor.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

struct Scheme;

// Several of the sender's tensors that the engine reads as one, joined along their first dimension: {"qkv_proj.weight",
// {"q_proj.weight", "k_proj.weight", "v_proj.weight"}}. All have one type and the same inner dimensions.
struct FusedOrder {
  std::string name;
  std::vector<std::string> parts;
};

// Every field has an initialiser, so code that names only some of them gets no warning.
struct ReceiverOptions {
  std::string endpoint{};  // as the sender's
  std::string worker{};    // this worker's name, unique at the endpoint
  // The tensors that the engine expects, checked before any byte moves; empty: whatever the sender has.
  std::vector<TensorSpec> expected{};
  // Compared with the sender's, where both gave one (SenderOptions::compatibility_key): if they differ, the sender
  // refuses this worker, and says both. UTF-8, 1 KiB at most; empty: none.
  std::string compatibility_key{};
  // weights(slot) has these, too: in place if this worker greeted before the first publication and no earlier worker
  // asked for another order; else as copies, made in the background into memory beside each slot. Not for a receiver
  // that registers a model.
  std::vector<FusedOrder> fused{};
  // One rank of an engine whose ranks flip together: rank 0 decides by commit(), the others follow by commit(version).
  std::string group{};
  std::uint32_t rank = 0, ranks = 1;
  // The device that reads, by this process's numbers, and the stream of that device that reads. kHost: the GPU of the
  // slots, whatever its number in this process, if the scheme's slots lie on a GPU; else the host. With a device and
  // slots in host memory, weights(slot) lie in copies on the device, usually two, which are made behind the writer. The
  // slot that a flip leaves is released once the stream has done the work that was queued before the commit(). The
  // stream must belong to the device (else INVALID_ARGUMENT), must outlive the receiver, and must not be in capture
  // into a graph during commit(). Threads that call commit() or destroy the receiver have the device current, as
  // LibTorch leaves it; a thread that never chose a device goes back to device 0, and CUDA makes a context there.
  int device = kHost;
  Stream stream = nullptr;
  int threads = 0;  // threads that copy at the flip (apply=commit), the engine's own included; 0: one per core
  // Called when commit() has work, to wake an idle engine. Must return at once, and call no function of the receiver.
  std::function<void()> on_pending{};
  std::function<void(std::string_view)> log{};  // called from any thread of the receiver; default: silent
  // Each control message but heartbeats, as "to sender: ready" before it goes out and "from sender: prepare" as it
  // comes; called from the I/O thread. Default: silent.
  std::function<void(std::string_view)> trace{};
  // Asked every 50 ms, on the engine's thread, while a follower's commit(version) or take(version) waits: true ends
  // that wait, with nothing changed and nobody poisoned. For a host language whose signals wait for its calls. Default:
  // never.
  std::function<bool()> interrupted{};
  const Scheme* scheme = nullptr;  // used instead of the registry's
};

// How register_model() copies.
struct ModelOptions {
  std::optional<Apply> apply{};  // none: the endpoint's apply=commit|background
  bool partial = false;          // it is on purpose that no target takes some of the sender's tensors
};

// What commit() did.
struct Flip {
  bool changed = false;
  Epoch epoch = 0;
  Version version = 0;    // served from now on; 0 before the first, and after a copy that failed
  SlotId slot;            // where its weights lie: a slot or, in a receiver that copies, a set of its own tensors
  bool poisoned = false;  // what is served must not be used until the next flip; status() says why. For good if this
                          // process has lost its device
};

enum class ReceiverState { kJoining, kPending, kServing, kPoisoned, kLoading };
const char* to_string(ReceiverState);

// A snapshot for status pages; any thread.
struct ReceiverStatus {
  ReceiverState state = ReceiverState::kJoining;
  bool attached = false;  // a sender has welcomed it: at its first publication, or later
  Epoch epoch = 0;
  Version version = 0;  // served, or loaded by the engine
  std::string path{};   // how versions come to it: "relay", "mirror"; empty: as its scheme always does
  // Why the worker was refused, why the last version failed, or what poisoned it; else, while it is attached, that its
  // endpoint's folder or socket is gone.
  absl::Status error;
};

// The tensors of one slot, by the sender's names; a tied tensor has each of its names. They are read-only memory, on
// the host or on a device (TensorView::device). Or the tensors of one set of the engine's own, by the targets' names.
class Weights {
 public:
  std::span<const TensorView> tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;  // null where there is none

 private:
  friend class WeightsBuilder;
  std::vector<TensorView> tensors_;  // sorted by name
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
