// Communicator: this process's rank in one communicator of NCCL. Communicators do not block: every wait polls, and ends
// when abort() is asked for.
//
//   making ──made(OK)──▶ idle ──broadcast()──▶ going ──done(OK)──▶ idle
//     │ made(error)        │                     │ done(error)
//     └────────────────────┴── abort() ──────────┴──────▶ aborting ──ended()──▶ (its threads are gone)
//
// It has two threads: one joins and broadcasts, the other aborts, behind the last call of the first. A thread of its
// own, since the first one may be stuck in a call of CUDA: the abort of one communicator frees memory, for which the
// driver waits, under a lock, for all kernels on the device; a kernel of another communicator whose peer has died ends
// only by that one's own abort.
//
// An abort may hang, inside NCCL and for ever. Then the threads are left alone with what they use; the owner knows by
// ended(), which does not come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include <bascule/schemes/nccl/library.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/nccl/place.h>

namespace bascule::inline v0::nccl {

struct Rank {
  CommGroupId group = 0;
  int rank = 0, ranks = 0;
  UniqueId id;
};

// One version, or what of it is left, through one communicator: from rank 0 to all others, piece by piece. A piece is
// whole tiles of the digest, but the last one.
struct Broadcast {
  std::uint64_t number = 0;  // of its delivery
  std::shared_ptr<std::byte> memory;
  std::uint64_t bytes = 0, from = 0;
  std::uint64_t piece_bytes = 0;  // the last may be shorter
  // Rank 0: how many bytes are there. It is asked again and again. Others: null.
  std::function<std::uint64_t()> written;
  // Others: the piece that ends there is enqueued on the stream. May be null.
  std::function<absl::Status(Stream stream, std::uint64_t begin, std::uint64_t end)> enqueued;
  // All came, or why not; `there`: a prefix that did. The memory is not touched any more if it is OK, or once ended().
  std::function<void(absl::Status status, std::uint64_t there)> done;
};

// The broadcast of `warm`, which carries nothing: out of `scratch` of kWarmBytes at rank 0, into it at the others.
inline constexpr std::uint64_t kWarmBytes = 4u << 20;  // enough that NCCL takes the path of large broadcasts
Broadcast warm_broadcast(std::shared_ptr<std::byte> scratch, std::function<void(absl::Status)> done);

class Communicator {
 public:
  struct Options {
    int max_ctas = 0;  // that its kernels take; 0: NCCL's own choice
  };
  struct Handlers {  // from its first thread
    std::function<void(absl::Status)> made;
    std::function<void()> ended;  // also after an init that failed, once abort() was asked for
  };

  // Starts to join at once. `library` outlives the process's last communicator.
  Communicator(const Library& library, std::shared_ptr<Place> place, Rank rank, Options options, Handlers handlers);
  ~Communicator();  // as abort(); its threads go on to their end, and so may its handlers
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void broadcast(Broadcast broadcast);  // behind those before; any thread
  void abort();                         // any thread; what is under way is done with an error first

  static int alive();      // communicators of this process that have not ended
  static int abandoned();  // inits that were aborted: NCCL keeps a thread and some 21 descriptors of each at rank 0

 private:
  struct State;
  std::shared_ptr<State> state_;  // its threads have it, too
};

}  // namespace bascule::inline v0::nccl
