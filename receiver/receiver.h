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
#include "transport/tensor.h"
#include "transport/version.h"

namespace bascule {

struct Scheme;

// Every field has an initialiser, so that a user who names some of them gets no warning.
struct ReceiverOptions {
  std::string endpoint{};  // as the sender's
  std::string worker{};    // this worker's name, unique at the endpoint
  // What the engine expects to be sent, checked before any byte moves; empty: whatever the sender has.
  std::vector<TensorSpec> expected{};
  // One rank of an engine whose ranks flip together. Kept for the next version; refused by name in this one.
  std::string group{};
  std::uint32_t rank = 0, ranks = 1;
  // commit() has work: wake an idle engine. Must return at once and call nothing of the receiver's.
  std::function<void()> on_pending{};
  std::function<void(std::string_view)> log{};  // called from any thread of the receiver; default: silent
  const Scheme* scheme = nullptr;               // used instead of the registry's
};

// What commit() did.
struct Flip {
  bool changed = false;
  Epoch epoch = 0;
  Version version = 0;  // served from now on; 0 before the first
  SlotId slot;          // where its weights lie
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

// The tensors of one slot, by the sender's names, tied ones under each of theirs. Read-only memory.
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

  // To copy into tensors of the engine's own. Kept for the next version; UNIMPLEMENTED in this one: read in place.
  absl::Status register_model(std::span<const MutableTensorView> tensors);

  // Blocks until a version is ready to be served (commit() will flip to it) or one is. DEADLINE_EXCEEDED says
  // how far it came; FAILED_PRECONDITION: the sender refused this worker, and why (it keeps trying, as the
  // sender may be replaced).
  absl::Status wait_ready(absl::Duration timeout);

  // At a token boundary: one atomic load when nothing is pending, a flip when something is. After a flip the
  // slot served before may be overwritten: use no view of it any more. Never blocks.
  Flip commit();

  // Views into the slot itself. They do not move while the slot lives: the same SlotId has the same views.
  const Weights& weights(SlotId slot) const;

  ReceiverStatus status() const;

 private:
  struct Impl;
  explicit Receiver(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule
