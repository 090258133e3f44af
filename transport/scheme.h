// What a scheme is: how slots get from the sender's memory to where a worker reads them. Two small
// interfaces, one for each end, over slots that the ring owns; docs/adding-a-scheme.md walks through a new
// one.
//
//   sender                                             receiver
//   admit(worker) ── offer, descriptors ─────────────▶ accept(offer)       once, when it joins
//   deliver(publication) ═══ bytes, if they move ════▶ prepare(publication) until they are there
//                                                      release(slot)        the engine reads it no more
#pragma once

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
#include "transport/posix/unique_fd.h"
#include "transport/slot_memory.h"
#include "transport/version.h"

namespace bascule {

struct Hello;

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
  const SlotMemory* memory = nullptr;  // lives as long as the sender
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

// What a worker can read. Host memory; valid until release().
struct SlotView {
  SlotId slot;
  std::span<const std::byte> bytes;
};

class SenderTransport {  // one a sender
 public:
  virtual ~SenderTransport() = default;
  // What `worker` needs to reach `slots`; called once when it joins. An error refuses the worker. I/O thread.
  virtual absl::StatusOr<Offer> admit(WorkerId worker, const Hello& hello, std::span<const OfferedSlot> slots) = 0;
  // The worker is gone. I/O thread.
  virtual void dismiss(WorkerId worker) = 0;
  // Moves a sealed slot to workers that cannot reach it themselves; returns when it has left, under the
  // deadline. Every addressed worker has said that its back slot is free. An error aborts the version for
  // all. Delivery thread.
  virtual absl::Status deliver(const Publication& publication, std::span<const WorkerId> workers,
                               Deadline deadline) = 0;
};

class ReceiverTransport {  // one an attachment to a sender's epoch
 public:
  virtual ~ReceiverTransport() = default;
  // Reaches the offered slots: maps, registers, pins; once, so that no send pays for it. Prepare thread, as
  // the rest.
  virtual absl::Status accept(ReceivedOffer offer) = 0;
  // Where the worker reads the slot, once its bytes are there or on their way to it: one address for all versions.
  virtual absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) = 0;
  // The engine reads this slot no more.
  virtual void release(SlotId slot) = 0;
};

// What the registry knows of a scheme.
struct Scheme {
  std::string name;                // as in a URL
  bool needs_descriptors = false;  // cannot leave the host: a URL with a host is refused
  std::function<absl::StatusOr<SlotMemory>(std::uint64_t bytes)> make_slot;
  std::function<std::unique_ptr<SenderTransport>()> make_sender;
  std::function<std::unique_ptr<ReceiverTransport>()> make_receiver;
};

}  // namespace bascule
