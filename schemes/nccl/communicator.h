// Communicator: this process's rank in one communicator of NCCL. Communicators do not block: every wait polls, and ends
// when abort() is called.
//
//   making ──made(OK)──▶ idle ──broadcast()──▶ going ──done(OK)──▶ idle
//     │ made(error)        │                     │ done(error)
//     └────────────────────┴── abort() ──────────┴──────▶ aborting ──ended()──▶ (its threads are gone)
//
// It has two threads: one joins and broadcasts, the other aborts after the first thread's last NCCL call. They are
// separate because the first may be stuck in a CUDA call. For example, aborting another communicator frees memory, and
// to free memory the driver takes a lock and waits until all kernels on the device have ended. If this communicator's
// peer has died, its kernel ends only when this communicator is aborted, and its first thread cannot do that while it
// waits for the lock.
//
// An abort may hang inside NCCL forever. Then the threads keep running with their memory, and ended() is never called.
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

// One version, or the rest of one, through one communicator: from rank 0 to all others, piece by piece. A piece is
// whole tiles; only the last may end within a tile.
struct Broadcast {
  std::uint64_t number = 0;  // of its delivery
  std::shared_ptr<std::byte> memory;
  std::uint64_t bytes = 0, from = 0;
  std::uint64_t piece_bytes = 0;  // the last piece may be shorter
  // Rank 0: returns how many bytes are written; it is polled. Others: null.
  std::function<std::uint64_t()> written;
  // Others: called when the piece of bytes [begin, end) is enqueued on the stream. May be null.
  std::function<absl::Status(Stream stream, std::uint64_t begin, std::uint64_t end)> enqueued;
  // Called with OK once all bytes have come, else with an error; `there` bytes, from the first, have come. The memory
  // is no longer touched after OK, or after ended().
  std::function<void(absl::Status status, std::uint64_t there)> done;
};

// Returns the broadcast that warms a group. It moves no version, only kWarmBytes of rank 0's `scratch` into the
// `scratch` of the other ranks.
inline constexpr std::uint64_t kWarmBytes = 4u << 20;  // enough that NCCL takes the path of large broadcasts
Broadcast warm_broadcast(std::shared_ptr<std::byte> scratch, std::function<void(absl::Status)> done);

class Communicator {
 public:
  struct Options {
    int max_ctas = 0;  // for its kernels; 0: NCCL chooses
  };
  struct Handlers {  // run on its first thread
    std::function<void(absl::Status)> made;
    std::function<void()> ended;  // called after abort(), even if the init had failed; see above
  };

  // Starts to join at once. `library` outlives the process's last communicator.
  Communicator(const Library& library, std::shared_ptr<Place> place, Rank rank, Options options, Handlers handlers);
  ~Communicator();  // calls abort(); its threads, and so its handlers, may run on until they end
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void broadcast(Broadcast broadcast);  // queued after earlier ones; any thread
  void abort();                         // any thread; a broadcast under way first ends with an error

  static int alive();      // communicators of this process that have not ended
  static int abandoned();  // inits that were aborted: for each, NCCL keeps a thread and some 21 descriptors at rank 0

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with its threads
};

}  // namespace bascule::inline v0::nccl
