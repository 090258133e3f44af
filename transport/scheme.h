// A scheme brings slots from the sender's memory to where a worker reads them. It has two small interfaces, one per
// end, over slots that the ring owns; docs/design/adding-a-scheme.md shows how to write one.
//
//   sender                                             receiver
//   make_slot()  what a slot is made of
//   offer(worker) ── bytes, descriptors ─────────────▶ accept(offer)        when it joins; again for newer slots
//                                                      prepare(publication) until the bytes are there
//   remove(worker)                                     end_read(slot)       the engine no longer reads it
//   unmake_slot(slot)                                  unmap(slot)          it left the ring
//
// Calls report errors by their return values; an exception that escapes a call ends the process.
//
// Separate interfaces cover what only some schemes do: moving the bytes to the workers (transport/delivery.h), copying
// from a slot while it is still being written (CopiesBehind), and slots that outlive the processes
// (transport/kept_slots.h).
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
class ReadsAgain;
class Reception;

using WorkerId = std::uint64_t;  // one membership; a sender never reuses a number

// The kind of a worker's control connection. Descriptors do not travel over TCP.
enum class ConnectionKind { kUnixSocket, kTcp };

struct Publication {
  Version version = 0;
  SlotId slot;
  std::uint64_t bytes = 0;
  std::optional<Digest> digest;  // known once the slot is sealed
};

// One slot as a scheme sees it.
struct OfferedSlot {
  SlotId id;
  const SlotMemory* memory = nullptr;                      // valid until unmake_slot()
  const std::atomic<std::uint64_t>* bytes_done = nullptr;  // length of the written prefix; release/acquire
};

// What a worker needs to reach slots: bytes that only the scheme understands, and descriptors.
struct Offer {
  std::string bytes;
  std::vector<int> descriptors;  // borrowed from the slots; at most kMostOffered
};
inline constexpr std::size_t kMostOffered = 62;  // the welcome carries two more
// Returns how many bytes are written of the slot's version, which the sender may still be writing; 0 over TCP, where
// the worker cannot know. Any thread.
using WrittenSoFar = std::function<std::uint64_t(SlotId)>;
struct ReceivedOffer {
  std::string bytes;
  std::vector<UniqueFd> descriptors;
  std::vector<SlotId> slots;
  std::uint64_t slot_bytes = 0;
  WrittenSoFar written{};  // never null; lives as long as the ReceiverTransport
};

inline constexpr std::uint32_t kOwnMemory =
    1u << 16;  // indices of a receiver's own memory begin here; slots' indices are lower

// Bytes that a worker can read until end_read(), in host memory or on a device of its process.
struct SlotView {
  SlotId slot;
  std::span<const std::byte> bytes;  // addresses on the device, if `device` is one
  int device = kHost;
  std::optional<Digest> digest{};  // of the bytes, if they were digested during the transfer
  // Holding this keeps the memory readable even after end_read() and unmap(), though another version may be written
  // there. If it is null, the memory lives as long as the transport.
  std::shared_ptr<const void> memory{};
  std::shared_ptr<const SlotHandle> handle{};  // null: this process cannot hand the memory on
};

class SenderTransport {  // one per sender
 public:
  virtual ~SenderTransport() = default;

  // Returns INVALID_ARGUMENT, naming the tensor, if slots cannot hold this layout. register_model() calls it, so that a
  // model is not refused as late as its first send. Public thread.
  virtual absl::Status check(const Layout&) { return absl::OkStatus(); }
  // Allocates a new slot, for tensors on `device` (or kHost). Returns RESOURCE_EXHAUSTED if memory is short. Public
  // thread.
  virtual absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) = 0;
  // For schemes with a region per rank (Scheme::region_granule): allocates, in the process of rank `region`, the memory
  // of that region of a new slot; its `place` is for offer(). make_slot() does this for region 0. `device` is the one
  // on which the rank's tensors lie, or kHost. Public thread.
  virtual absl::StatusOr<SlotMemory> make_region(const Layout&, std::uint32_t /*region*/, int /*device*/) {
    return absl::UnimplementedError("this scheme has no slots of several regions");
  }
  // For schemes with Scheme::hands_on: maps a slot that another sender, or this one, has made and sealed, for reading
  // only. `device` is the one that the memory lies on, or kHost. Public thread.
  virtual absl::StatusOr<SlotMemory> adopt_slot(const SlotHandle&, const Layout&, int /*device*/) {
    return absl::UnimplementedError("this scheme cannot adopt a slot");
  }
  // Called after make_slot(), once every process that writes the slot has mapped it, and before it is offered: from now
  // on no other process may write it. Public thread.
  virtual absl::Status seal_slot(SlotMemory&) { return absl::OkStatus(); }
  // Frees the memory of a slot that has left the ring and that no worker reads any more. Public thread.
  virtual void unmake_slot(SlotId) {}
  // Returns what `worker` needs to reach `slots`: all slots when it joins, later only the new ones. An error refuses
  // the worker. I/O thread.
  virtual absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) = 0;
  // The worker is gone. I/O thread.
  virtual void remove(WorkerId) {}

  // The scheme's optional interfaces, or null for those that it lacks. Every call returns the same pointer.
  virtual Delivery* delivery() { return nullptr; }
  virtual KeptSlots* kept_slots() { return nullptr; }
  // For schemes with several paths: names the one by which versions reach `worker`, such as "relay", for people to
  // read. Empty if the scheme has only one path, or the worker has not reported its path yet. I/O thread.
  virtual std::string path(WorkerId) const { return {}; }
};

class ReceiverTransport {  // one per attachment to a sender's epoch; prepare thread, one call at a time (see maps_once)
 public:
  virtual ~ReceiverTransport() = default;
  // Makes the offered slots reachable: maps, registers or pins each slot once, so that no send pays for it. The first
  // call offers the slots listed in the welcome; later calls offer each slot that the sender adds. After a lost
  // connection all slots are offered again, and a slot that was accepted before keeps its address. Returns
  // UNIMPLEMENTED if this process can never reach the slots, so that it does not retry.
  virtual absl::Status accept(ReceivedOffer offer) = 0;
  // Blocks until the version's bytes are there or on their way, and returns where the worker reads them. The view's
  // `slot` names the sender's slot or, if the scheme has its own memory here, one of its free buffers. Either way, a
  // number always stands for the same address.
  virtual absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) = 0;
  // The engine has stopped reading the view's slot, or will never read it.
  virtual void end_read(SlotId slot) = 0;

  // Returns where the bytes of an accepted slot lie until unmap(), or nullopt if they have no fixed address. The view's
  // `device` is the one that owns the memory, possibly a peer of the GPU that reads it. Of the scheme's own memory:
  // where a buffer lies that prepare() may return again under this number. If it returns nullopt for one, the core
  // forgets what it made of that buffer, such as the list of its tensors, and makes it anew.
  virtual std::optional<SlotView> find(SlotId) const { return std::nullopt; }
  // The slot left the ring: unmap its memory.
  virtual void unmap(SlotId) {}
  // Like SenderTransport::path(), for this worker. Call it after accept().
  virtual std::string path() const { return {}; }

  // The scheme's optional interfaces, or null for those that it lacks. accept() may change the answers.
  virtual CopiesBehind* copies_behind() { return nullptr; }
  virtual KeptVersions* kept_versions() { return nullptr; }
  virtual Reception* reception() { return nullptr; }
  virtual ReadsAgain* reads_again() { return nullptr; }
};

// For schemes whose prepare() copies the bytes out of the memory that the sender writes, possibly before all are
// written. The copy takes time, and only a digest of the copied bytes can verify it.
class CopiesBehind {
 public:
  virtual ~CopiesBehind() = default;
  // Reports that the first `bytes_done` bytes of a version are written. Returns soon. Called for one version at a time;
  // that version may still be aborted.
  virtual void copy_behind(const Publication& publication, std::uint64_t bytes_done) = 0;
  // Blocks until all work that earlier calls started, even calls that failed, has stopped reading and writing. Returns
  // DEADLINE_EXCEEDED if some still reads or writes.
  virtual absl::Status settle(Deadline deadline) = 0;
};

// For schemes that bring versions to memory of the worker, and can bring ranges of a version again if some bytes came
// wrong (transport/source.h).
class ReadsAgain {
 public:
  virtual ~ReadsAgain() = default;
  // Reads these ranges of a prepared version again, from another source than before if there is one. `view` is the slot
  // of its view, `ranges` are whole tiles. Blocks until they have arrived, and returns the digest of the whole version.
  virtual absl::StatusOr<Digest> read_again(const Publication& publication, SlotId view,
                                            std::span<const ByteRange> ranges, Deadline deadline) = 0;
};

// What the registry knows about a scheme.
struct Scheme {
  std::string name;                // as in a URL
  bool needs_descriptors = false;  // works on one host only: a URL with a host is refused unless over_tcp is set
  bool maps_once = false;    // prepare() and end_read() only look up what accept() mapped: the I/O thread may call them
  bool on_device = false;    // slots are memory of the device that the tensors lie on
  bool keeps_files = false;  // slots outlive the processes
  // A process that has mapped a slot can hand its memory on to another sender: adopt_slot(), SlotView::handle.
  bool hands_on = false;
  bool many_writers = false;  // several processes can map a slot's descriptor and write it, until seal_slot()
  // Not 0: a slot may consist of several regions, each of which another rank of a sharded trainer makes and writes.
  // Regions begin at multiples of so many bytes, which are whole tiles of the digest's tables (64 KiB), and workers
  // read all of them at one range of addresses.
  std::uint64_t region_granule = 0;
  // Versions arrive in the worker's own memory, on the device where the worker reads, so the core need not copy them
  // there.
  bool to_own_memory = false;
  bool serves_hosts = false;            // with on_device: also brings versions to workers that read on the host
  std::vector<SchemeOption> options{};  // in addition to every endpoint's options
  // If set, both ends use this other scheme at an endpoint with a host. needs_descriptors then applies to folders only,
  // and a sender with a folder can also take listen=, so offer() is told each worker's kind of connection.
  std::shared_ptr<const Scheme> over_tcp{};
  std::function<absl::Status()> usable{};  // its error names what this build or machine lacks; null: always usable
  std::function<absl::StatusOr<std::unique_ptr<SenderTransport>>(const Endpoint&, Epoch)> make_sender;
  std::function<std::unique_ptr<ReceiverTransport>(const Endpoint&)> make_receiver;
};

}  // namespace bascule::inline v0
