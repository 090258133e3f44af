// Receiver: the engine's end. It prepares new versions in the background and flips to them at a token
// boundary.
//
// Threads: connect() starts an I/O thread, which never touches weights, and a prepare thread, which maps and
// verifies. commit(), weights() and wait_ready() belong to the engine's own thread. `on_pending` is called
// from the I/O thread. fork: a child must not use the object; a child that lives on keeps this process's
// leases (it may still read). Destruction ends the leases: no view may be used after it.
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
#include "transport/target.h"
#include "transport/tensor.h"
#include "transport/version.h"

namespace bascule {

struct Scheme;

// Several of the sender's tensors that the engine reads as one, joined along their first dimension: {"qkv_proj.weight",
// {"q_proj.weight", "k_proj.weight", "v_proj.weight"}}. All of one type, with the same inner dimensions.
struct FusedOrder {
  std::string name;
  std::vector<std::string> parts;
};

// Every field has an initialiser, so that a user who names some of them gets no warning.
struct ReceiverOptions {
  std::string endpoint{};  // as the sender's
  std::string worker{};    // this worker's name, unique at the endpoint
  // What the engine expects to be sent, checked before any byte moves; empty: whatever the sender has.
  std::vector<TensorSpec> expected{};
  // weights(slot) has these, too. In place where this worker greeted before the first publication and nobody asked for
  // another order before; else as copies, made in the background, for which there is memory beside each slot. Not for a
  // receiver that registers a model.
  std::vector<FusedOrder> fused{};
  // One rank of an engine whose ranks flip together: rank 0 decides by commit(), the others follow by commit(version).
  std::string group{};
  std::uint32_t rank = 0, ranks = 1;
  // The device that reads, by this process's numbers, and the stream of it that does. The slot that a flip leaves is
  // given back once that stream has passed the work that it was given before the commit(). kHost: of a scheme whose
  // slots lie on a GPU that GPU, whatever this process calls it; of any other the host. A device and slots in host
  // memory: weights(slot) lie in copies on the device, two of them as a rule, that are made behind the writer.
  // Threads that call commit() or destroy the receiver have it current, as LibTorch leaves it: one that never chose a
  // device is taken back to device 0, and CUDA makes a context there.
  int device = kHost;
  Stream stream = nullptr;
  int threads = 0;  // that copy at the flip (apply=commit), the engine's own included; 0: one per core
  // commit() has work: wake an idle engine. Must return at once and call nothing of the receiver's.
  std::function<void()> on_pending{};
  std::function<void(std::string_view)> log{};  // called from any thread of the receiver; default: silent
  // Each control message but heartbeats, as "to sender: ready" before it goes out and "from sender: prepare" as it
  // comes; called from the I/O thread. Default: silent.
  std::function<void(std::string_view)> trace{};
  const Scheme* scheme = nullptr;  // used instead of the registry's
};

// How register_model() copies.
struct ModelOptions {
  std::optional<Apply> apply{};  // none: the endpoint's apply=commit|background
  bool partial = false;          // some of the sender's tensors are taken by no target, on purpose
};

// What commit() did.
struct Flip {
  bool changed = false;
  Epoch epoch = 0;
  Version version = 0;    // served from now on; 0 before the first, and after a copy that went wrong
  SlotId slot;            // where its weights lie: a slot or, of a receiver that copies, a set of its own tensors
  bool poisoned = false;  // what is served must not be used, until a flip: status() says why
};

enum class ReceiverState { kJoining, kPending, kServing, kPoisoned };
const char* to_string(ReceiverState);

// A snapshot for status pages; any thread.
struct ReceiverStatus {
  ReceiverState state = ReceiverState::kJoining;
  bool attached = false;  // a sender is connected
  Epoch epoch = 0;
  Version version = 0;  // served
  absl::Status error;   // why it was refused, why the last version failed, or what poisoned it
};

// The tensors of one slot, by the sender's names, tied ones under each of theirs: read-only memory, of the host or of
// a device (TensorView::device). Or those of one set
// of the engine's own, by the targets' names.
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
  // Checks its arguments and returns, sender or not: it keeps trying.
  static absl::StatusOr<Receiver> connect(ReceiverOptions options);

  Receiver(Receiver&&) noexcept;
  Receiver& operator=(Receiver&&) noexcept;
  ~Receiver();

  // Copies into tensors of the engine's own, instead of reading in place. `targets` say how they are made of the
  // sender's (transport/target.h); their memory must outlive the receiver. With Apply::kCommit it holds the version
  // that is served, from the flip on. With Apply::kBackground a second set is allocated here, and the versions go to
  // the two in turn: weights(flip.slot) are those of the set to read, the second one first; a set that is not served
  // may be written at any time. Before the first wait_ready() or commit(), else FAILED_PRECONDITION, as on a second
  // call. INVALID_ARGUMENT names the target. Whether they fit a sender is known once there is one: wait_ready() says.
  absl::Status register_model(std::vector<TargetTensor> targets, ModelOptions options = {});

  // Blocks until a version is ready to be served (commit() will flip to it) or one is. DEADLINE_EXCEEDED says
  // how far it came; FAILED_PRECONDITION: the sender's model and this worker's differ, or it was refused, and why (it
  // keeps trying, as the sender may be replaced).
  absl::Status wait_ready(absl::Duration timeout);

  // At a token boundary: one atomic load when nothing is pending, a flip when something is. After a flip the
  // slot served before may be overwritten: use no view of it any more. Does not block, but with slots=1, where it
  // waits while the trainer writes: until the sender publishes, aborts or falls silent. A follower (rank > 0) never
  // flips by this. With Apply::kCommit a flip is the copy; where that goes wrong the tensors hold no version at all,
  // and the worker is poisoned until a flip succeeds.
  Flip commit();

  // Of a follower: flips to the version that rank 0's commit() came back with, and that came along with the step.
  // Blocks until it is prepared here, under flip_timeout; where it is not, this worker and so its group are poisoned.
  // Of any other worker: as commit().
  Flip commit(Version version);

  // Views into the slot itself, or the set. They do not move while it lives: the same SlotId has the same views.
  const Weights& weights(SlotId slot) const;

  ReceiverStatus status() const;

 private:
  struct Impl;
  explicit Receiver(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule
