// ReceiverOptions and ModelOptions: what an engine says when it makes its receiver, and when it registers a model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/transport/target.h>
#include <bascule/transport/tensor.h>

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
  // slots in host memory, weights(slot) lie in receive buffers on the device, usually two, which are filled behind the
  // writer. The slot that a flip leaves is released once the stream has done the work that was queued before the
  // commit(). The stream must belong to the device (else INVALID_ARGUMENT), must outlive the receiver, and must not be
  // in capture into a graph during commit(). Threads that call commit() or destroy the receiver have the device
  // current, as LibTorch leaves it; a thread that never chose a device goes back to device 0, and CUDA makes a context
  // there.
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

}  // namespace bascule::inline v0
