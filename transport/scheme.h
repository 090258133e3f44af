// A scheme: how slots get from the sender's memory to where a worker reads them. It has two small interfaces, one for
// each end, over slots that the ring owns; docs/design/adding-a-scheme.md shows how to write one.
//
//   sender                                             receiver
//   make_slot()  what a slot is made of
//   offer(worker) ── bytes, descriptors ─────────────▶ accept(offer)        when it joins; again for newer slots
//                                                      prepare(publication) until the bytes are there
//   remove(worker)                                     end_read(slot)       the engine no longer reads it
//   unmake_slot(slot)                                  unmap(slot)          it left the ring
//
// Errors are what the calls return: an exception that leaves one ends the process.
//
// What only some schemes do is an interface of its own: bytes that move by themselves (transport/delivery.h), copies
// that begin while the slot is written (CopiesBehind), slots that outlive the processes (transport/kept_slots.h).
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
#include <bascule/kernels/digest.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/scheme_option.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

struct Endpoint;
class CopiesBehind;
class Delivery;
class KeptSlots;
class KeptVersions;
class Reception;

using WorkerId = std::uint64_t;  // one membership; a sender never reuses a number

// What a worker's control connection is. Over TCP no descriptor reaches it.
enum class ConnectionKind { kUnixSocket, kTcp };

struct Publication {
  Version version = 0;
  SlotId slot;
  std::uint64_t bytes = 0;
  std::optional<Digest> digest;  // known once it is sealed
};

// One slot as a scheme sees it.
struct OfferedSlot {
  SlotId id;
  const SlotMemory* memory = nullptr;                      // lives until unmake_slot()
  const std::atomic<std::uint64_t>* bytes_done = nullptr;  // the prefix of it that is written; release/acquire
};

// What a worker needs to reach slots: bytes that only the scheme understands, and descriptors.
struct Offer {
  std::string bytes;
  std::vector<int> descriptors;  // borrowed from the slots; kMostOffered at most
};
inline constexpr std::size_t kMostOffered = 14;  // the welcome takes two more
// How many bytes of a slot are there, of the version that is being written to it or was last; 0 over TCP, where it
// cannot be known. Any thread.
using WrittenSoFar = std::function<std::uint64_t(SlotId)>;
struct ReceivedOffer {
  std::string bytes;
  std::vector<UniqueFd> descriptors;
  std::vector<SlotId> slots;
  std::uint64_t slot_bytes = 0;
  WrittenSoFar written{};  // never null; lives as long as the ReceiverTransport
};

inline constexpr std::uint32_t kOwnMemory =
    1u << 16;  // indices of a receiver's own memory begin here; slots have lower ones

// What a worker can read, in host memory or on a device of its own process; valid until end_read().
struct SlotView {
  SlotId slot;
  std::span<const std::byte> bytes;  // on a device: addresses there
  int device = kHost;
  std::optional<Digest> digest{};  // of the bytes, if they were digested on their way here
  // Keeps the bytes readable also beyond end_read() and unmap(), when another version may be written there. None: they
  // go with the transport.
  std::shared_ptr<const void> memory{};
};

class SenderTransport {  // one a sender
 public:
  virtual ~SenderTransport() = default;

  // The memory of a new slot, for tensors that lie on `device` (or kHost). RESOURCE_EXHAUSTED: there is not enough.
  // Public thread.
  virtual absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) = 0;
  // The slot left the ring and no worker reads it: its memory goes. Public thread.
  virtual void unmake_slot(SlotId) {}
  // What `worker` needs to reach `slots`: all slots when it joins, later only the new ones. An error refuses the
  // worker. I/O thread.
  virtual absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) = 0;
  // The worker is gone. I/O thread.
  virtual void remove(WorkerId) {}

  // What else the scheme does; null: nothing of the kind. The same at each call.
  virtual Delivery* delivery() { return nullptr; }
  virtual KeptSlots* kept_slots() { return nullptr; }
  // How versions come to `worker`, in a word or two for people, where a scheme has several paths: "relay"; empty: it
  // has one, or the worker has not said yet. I/O thread.
  virtual std::string path(WorkerId) const { return {}; }
};

class ReceiverTransport {  // one for each attachment to a sender's epoch; prepare thread, one call at a time (see
                           // maps_once)
 public:
  virtual ~ReceiverTransport() = default;
  // Reaches the offered slots: maps, registers, pins; once for each slot, so that no send pays for it. UNIMPLEMENTED:
  // this process never will, and need not try again. First come the slots of the welcome, then each slot that the
  // sender makes later. After a lost connection all are offered again: a slot that is known already stays where it is.
  virtual absl::Status accept(ReceivedOffer offer) = 0;
  // Returns once the bytes of the version are where the worker reads them, or on their way there, and says where that
  // is. The view's slot is the sender's, or the number of a free piece of memory if the scheme has memory of its own
  // here. Either way, one number always stands for one address.
  virtual absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) = 0;
  // The engine no longer reads the slot of a view, or will not read it after all.
  virtual void end_read(SlotId slot) = 0;

  // Where the bytes of an accepted slot lie, until unmap(). `device` is the device whose memory they are, which may be
  // a peer GPU of the one that reads. None: there is no such place, or it moves.
  virtual std::optional<SlotView> find(SlotId) const { return std::nullopt; }
  // The slot left the ring: unmap its memory.
  virtual void unmap(SlotId) {}
  // As SenderTransport::path(), of this worker, once slots were accepted.
  virtual std::string path() const { return {}; }

  // What else the scheme does; null: nothing of the kind. Asked anew once slots were accepted.
  virtual CopiesBehind* copies_behind() { return nullptr; }
  virtual KeptVersions* kept_versions() { return nullptr; }
  virtual Reception* reception() { return nullptr; }
};

// prepare() copies the bytes from where they were written, and may begin while they are. That takes time, and only a
// digest of the copy can verify it.
class CopiesBehind {
 public:
  virtual ~CopiesBehind() = default;
  // The first `bytes_done` bytes of a version that is being written are there. Returns soon. Called for one version at
  // a time, which may be aborted in the end.
  virtual void copy_behind(const Publication& publication, std::uint64_t bytes_done) = 0;
  // Blocks until everything that earlier calls began, also those that failed, has stopped to read or write.
  // DEADLINE_EXCEEDED: something still reads or writes.
  virtual absl::Status settle(Deadline deadline) = 0;
};

// What the registry knows of a scheme.
struct Scheme {
  std::string name;                // as in a URL
  bool needs_descriptors = false;  // works on one host only: a URL with a host is refused, unless over_tcp
  bool maps_once = false;    // prepare() and end_read() only look up what accept() mapped: the I/O thread may call them
  bool on_device = false;    // slots are memory of the device that the tensors lie on
  bool keeps_files = false;  // slots outlive the processes
  // Versions come to memory of the worker's own, on the device that it reads on: the core need not copy them there.
  bool to_own_memory = false;
  bool serves_hosts = false;            // with on_device: workers that read on the host have what they read there, too
  std::vector<SchemeOption> options{};  // its own, beside those of every endpoint
  // What both ends are instead, at an endpoint with a host; null: the same. needs_descriptors is of a folder then, and
  // a sender with a folder can listen= as well: offer() says which worker came how.
  std::shared_ptr<const Scheme> over_tcp{};
  std::function<absl::Status()> usable{};  // an error: what this build or machine lacks for it; null: nothing
  std::function<absl::StatusOr<std::unique_ptr<SenderTransport>>(const Endpoint&, Epoch)> make_sender;
  std::function<std::unique_ptr<ReceiverTransport>(const Endpoint&)> make_receiver;
};

}  // namespace bascule::inline v0
