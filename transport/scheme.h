// What a scheme is: how slots get from the sender's memory to where a worker reads them. Two small
// interfaces, one for each end, over slots that the ring owns; docs/adding-a-scheme.md walks through a new
// one. What most schemes need not do has a default.
//
//   sender                                             receiver
//   make_slot()  what a slot is made of
//   admit(worker) ── offer, descriptors ─────────────▶ accept(offer)        when it joins; again for newer slots
//   begin(slot)  writing begins                        follow(publication)  again and again, while it is written
//   seal(publication)                                  prepare(publication) until the bytes are there
//   deliver(publication) ═══ bytes, if they move ════▶
//   publish(publication)  the decision
//   persist(publication)                               release(slot)        the engine reads it no more
//   drop(slot)                                         forget(slot)         it is a slot no more
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/digest.h"
#include "transport/deadline.h"
#include "transport/layout.h"
#include "transport/posix/unique_fd.h"
#include "transport/slot_memory.h"
#include "transport/version.h"

namespace bascule {

struct Endpoint;
struct Hello;
namespace kernels {
class ThreadPool;
}

using WorkerId = std::uint64_t;  // of one membership; never reused by a sender

struct Publication {
  Version version = 0;
  SlotId slot;
  std::uint64_t bytes = 0;
  std::optional<Digest> digest;  // known once it is sealed
};

// One slot as a scheme sees it.
struct OfferedSlot {
  SlotId id;
  const SlotMemory* memory = nullptr;  // lives until drop()
};

// What a worker needs to reach slots: bytes that only the scheme understands, and descriptors.
struct Offer {
  std::string bytes;
  std::vector<int> descriptors;  // borrowed from the slots; at most 14
};
struct ReceivedOffer {
  std::string bytes;
  std::vector<UniqueFd> descriptors;
  std::vector<SlotId> slots;
  std::uint64_t slot_bytes = 0;
};

inline constexpr std::uint32_t kOwnMemory = 1u << 16;  // indices of what is no sender's slot begin here

// What a worker can read, in host memory or on a device of its own process; valid until release().
struct SlotView {
  SlotId slot;
  std::span<const std::byte> bytes;  // of a device: addresses there
  int device = kHost;
  std::optional<Digest> digest{};  // of the bytes, where they were digested on their way here
};

// A whole version that was found without a sender.
struct FoundVersion {
  Publication publication;
  Layout layout;
  SlotView view;            // valid until release()
  std::string description;  // how it was read, for logs
};

class SenderTransport {  // one a sender
 public:
  virtual ~SenderTransport() = default;

  // The highest version that outlived the senders of before, 0: none; this one continues above it.
  virtual Version last_version() const;

  // ---- slots: public thread ----

  // The memory of a new slot, for tensors that lie on `device` (or kHost). RESOURCE_EXHAUSTED: there is not enough.
  virtual absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) = 0;
  // Writing begins; `bytes_done` grows with the prefix that is complete. UNAVAILABLE: somebody whom the ring does not
  // know still reads the slot; a fresh one takes its place.
  virtual absl::Status begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline);
  // The last byte is in. An error aborts the version.
  virtual absl::Status seal(const Publication& publication);
  // The slot left the ring and nobody reads it: its memory goes.
  virtual void drop(SlotId slot);

  // ---- workers: I/O thread ----

  // What `worker` needs to reach `slots`: all of them when it joins, later ones by themselves. An error refuses the
  // worker.
  virtual absl::StatusOr<Offer> admit(WorkerId worker, const Hello& hello, std::span<const OfferedSlot> slots) = 0;
  // The worker is gone.
  virtual void dismiss(WorkerId worker);
  // Everybody has the version prepared and nobody was told to flip yet. An error aborts it for all.
  virtual absl::Status publish(const Publication& publication);

  // ---- bytes: delivery thread ----

  // Whether deliver() and persist() have anything to do; they are not called where not.
  virtual bool delivers() const;
  virtual bool persists() const;
  // Moves a sealed slot to workers that cannot reach it themselves; returns when it has left, under the
  // deadline. Every addressed worker has said that its back slot is free. An error aborts the version for
  // all.
  virtual absl::Status deliver(const Publication& publication, std::span<const WorkerId> workers, Deadline deadline);
  // Returns once the published version would survive a loss of power. An error is a warning: it is published.
  virtual absl::Status persist(const Publication& publication, Deadline deadline);
};

class ReceiverTransport {  // one an attachment to a sender's epoch; prepare thread, one call at a time (see maps_once)
 public:
  virtual ~ReceiverTransport() = default;
  // Reaches the offered slots: maps, registers, pins; once a slot, so that no send pays for it. Those of the welcome
  // first, then each that the sender made later, and all anew after a lost connection: a slot that is known already
  // stays where it is.
  virtual absl::Status accept(ReceivedOffer offer) = 0;
  // Where the bytes of a slot lie that was accepted, whoever writes them; until forget(). `device` is the one whose
  // memory they are, which may be a peer of the one that reads. None: there is no such place, or it moves.
  virtual std::optional<SlotView> find(SlotId slot) const;
  // Whether prepare() brings bytes from where they were written, which takes its time, and which only a digest of what
  // came can verify. Known once slots are accepted.
  virtual bool copies() const;
  // The first `bytes_done` bytes of a version that is being written are there: who copies may begin. Returns soon. Of
  // one version at a time, and for nothing where it is not prepared in the end.
  virtual void follow(const Publication& publication, std::uint64_t bytes_done);
  // Where the worker reads the version, once its bytes are there or on their way to it. The view's slot is the
  // sender's, or, where the scheme has memory of its own here, the number of a piece of that which is not in use: one
  // address for all versions either way.
  virtual absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) = 0;
  // The engine reads this slot, of a view, no more, or will not after all.
  virtual void release(SlotId slot) = 0;
  // The slot left the ring: let go of its memory.
  virtual void forget(SlotId slot);
  // Without a sender: the whole versions above `newer_than` that can be read all the same, the newest first. The core
  // verifies their digests, serves the first that is right and releases the others.
  virtual absl::StatusOr<std::vector<FoundVersion>> find_versions(Version newer_than);
  // The digest of such a version as its bytes lie in storage; adds to its description. prepare() follows where it is
  // right.
  virtual absl::StatusOr<Digest> digest_of(FoundVersion& found, kernels::ThreadPool& pool);
};

// What the registry knows of a scheme.
struct Scheme {
  std::string name;                // as in a URL
  bool needs_descriptors = false;  // cannot leave the host: a URL with a host is refused
  bool maps_once = false;          // prepare() and release() only look up what accept() mapped: the I/O thread may
  bool on_device = false;          // slots are memory of the device that the tensors lie on
  bool keeps_files = false;        // slots outlive the processes: the options durable and fresh have a meaning
  std::function<absl::StatusOr<std::unique_ptr<SenderTransport>>(const Endpoint&, Epoch)> make_sender;
  std::function<std::unique_ptr<ReceiverTransport>(const Endpoint&)> make_receiver;
};

}  // namespace bascule
