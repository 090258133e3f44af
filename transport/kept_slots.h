// The interface for schemes whose slots outlive the processes (Scheme::keeps_files), so that readers find the newest
// whole version even without a sender. schemes/memmap is the example.
//
//   sender                                             receiver
//   begin(slot)  writing begins
//   seal(publication)
//   publish(publication)  the decision ─────────────▶ find_versions()      also once the sender is gone
//   persist(publication)                              digest_of(), bring_in()
#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

namespace kernels {
class ThreadPool;
}

// The sender's end.
class KeptSlots {
 public:
  virtual ~KeptSlots() = default;

  // Returns the highest version that earlier senders left, or 0. This sender's versions continue above it.
  virtual Version last_version() const = 0;

  // ---- slots: public thread ----

  // Writing begins; `bytes_done` grows with the complete prefix. Returns UNAVAILABLE if a reader that the ring does not
  // know of still reads the slot; the ring then makes a new slot instead.
  virtual absl::Status begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline) = 0;
  // The last byte is written. Returning an error aborts the version.
  virtual absl::Status seal(const Publication& publication) = 0;

  // ---- versions: storage thread ----

  // Called when all workers have prepared the version and none has got `decided` yet. Returning an error aborts the
  // version for all. May block for as long as storage does; meanwhile nothing aborts the version, and the sender still
  // notices workers that die.
  virtual absl::Status publish(const Publication& publication) = 0;
  // Returns the warnings since the last call; they go into the report of the send that published last.
  virtual std::vector<std::string> take_warnings() = 0;
  // Whether each version gets a new slot, so that no slot is written twice.
  virtual bool fresh_slots() const { return false; }
  // Whether versions must survive a loss of power; if not, persist() is never called.
  virtual bool persists() const = 0;
  // Blocks until the published version would survive a loss of power. An error becomes only a warning, since the
  // version is already published.
  virtual absl::Status persist(const Publication& publication, Deadline deadline) = 0;
};

// A whole version that was found without a sender.
struct FoundVersion {
  Publication publication;
  Layout layout;
  SlotView view;            // valid until end_read()
  std::string description;  // how it was read, for logs
};

// The receiver's end. Prepare thread.
class KeptVersions {
 public:
  virtual ~KeptVersions() = default;
  // Returns the whole versions above `newer_than` that can be read without a sender, newest first. The core verifies
  // their digests, serves the first valid one and calls end_read() for the others.
  virtual absl::StatusOr<std::vector<FoundVersion>> find_versions(Version newer_than) = 0;
  // Computes the digest of a found version from the bytes in storage, and adds to its description. If the digest
  // matches, bring_in() and prepare() follow. digest_of() and bring_in() read in pieces and may take long; they return
  // CANCELLED if `stop` is requested meanwhile.
  virtual absl::StatusOr<Digest> digest_of(FoundVersion& found, kernels::ThreadPool& pool,
                                           const std::stop_token& stop) = 0;
  // Reads the version's bytes into memory, so that prepare() need not.
  virtual absl::Status bring_in(const FoundVersion& found, const std::stop_token& stop) = 0;
};

}  // namespace bascule::inline v0
