// ReceiverOptions and ModelOptions: an engine's settings for its receiver, and for registering a model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/target.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

struct Scheme;
class Layout;

// Several of the sender's tensors that the engine reads as one, joined along their first dimension: {"qkv_proj.weight",
// {"q_proj.weight", "k_proj.weight", "v_proj.weight"}}. All parts must have the same type and inner dimensions.
struct FusedOrder {
  std::string name;
  std::vector<std::string> parts;
};

// Every field has an initialiser, so code that names only some of them gets no warning.
struct ReceiverOptions {
  std::string endpoint{};  // the same as the sender's
  std::string worker{};    // this worker's name, unique at the endpoint
  // The tensors that the engine expects, checked before any byte moves. If empty, the engine takes any tensors.
  std::vector<TensorSpec> expected{};
  // Called with the tensors and the description of each sender, and of a version found without one, before any byte
  // moves. An error refuses the
  // sender, which reports the text. It is called on a thread of the receiver, which waits for it.
  std::function<absl::Status(const Layout&)> accept{};
  // If both sides give a key (SenderOptions::compatibility_key) and the two differ, the sender refuses this worker and
  // reports both keys. UTF-8, at most 1 KiB; empty: none.
  std::string compatibility_key{};
  // Fused tensors that weights(slot) contains in addition. They are read in place if this worker greeted before the
  // first publication and no earlier worker requested another order; otherwise they are copies, made in the background
  // into memory beside each slot. Not for a receiver that registers a model.
  std::vector<FusedOrder> fused{};
  // One rank of an engine whose ranks flip together: rank 0 decides by commit(), the others follow by commit(version).
  std::string group{};
  std::uint32_t rank = 0, ranks = 1;
  // The device that reads the weights (by this process's numbering), and the stream on which it reads. If the scheme's
  // slots lie on a GPU, kHost means that GPU, whatever its number in this process; otherwise it means the host. If a
  // device reads and the slots lie in host memory, weights(slot) lie in receive buffers on the device, usually two,
  // which are filled while the sender writes. After a flip, the previous slot is released once the stream has done the
  // work that was queued before the commit(). The stream must belong to the device (else INVALID_ARGUMENT), must
  // outlive the receiver, and must not be capturing into a graph during commit(). Threads that call commit() or destroy
  // the receiver should have made the device current, as LibTorch does; on a thread that never chose a device, these
  // calls make device 0 current again at their end, and CUDA makes a context there.
  int device = kHost;
  Stream stream = nullptr;
  int threads = 0;  // threads that copy at the flip (apply=commit), the engine's own included; 0: one per core
  // Called when commit() has work, to wake an idle engine; for a version that came between take() and finish(), it is
  // called after finish(). It must return at once and not call the receiver.
  // The receiver may be destroyed inside one of the calls on_pending, log, warn and trace. It then ends on another
  // thread, soon after that call has returned, and makes no further call.
  std::function<void()> on_pending{};
  // Called from any thread of the receiver; default: silent. The same line, repeated, is left out and counted.
  std::function<void(std::string_view)> log{};
  // The same for lines about something that went wrong, such as a refusal. Default: `log` gets them.
  std::function<void(std::string_view)> warn{};
  // Called with each control message except heartbeats, as "to sender: ready" before it is sent and "from sender:
  // prepare" when it arrives, from the I/O thread. Default: silent.
  std::function<void(std::string_view)> trace{};
  // Called every 50 ms, on the engine's thread, while a follower's commit(version) or take(version) waits. If it
  // returns true, the wait ends; nothing changes, and no worker is poisoned. For a host language that delivers signals
  // only between its calls. Default: no wait is interrupted.
  std::function<bool()> interrupted{};
  const Scheme* scheme = nullptr;  // used instead of the registry's
};

// How register_model() copies.
struct ModelOptions {
  std::optional<Apply> apply{};  // none: the endpoint's apply=commit|background
  bool partial = false;          // the targets omit some of the sender's tensors on purpose
};

}  // namespace bascule::inline v0
