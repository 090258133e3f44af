// What a scheme adds whose slots outlive the processes (Scheme::keeps_files): readers without a sender find the newest
// whole version. schemes/memmap is the model.
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

  // The highest version that earlier senders left; 0: none. This sender continues above it.
  virtual Version last_version() const = 0;

  // ---- slots: public thread ----

  // Writing begins; `bytes_done` grows with the prefix that is complete. UNAVAILABLE: a reader that the ring does not
  // know still reads the slot; a new slot takes its place.
  virtual absl::Status begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline) = 0;
  // The last byte is in. An error aborts the version.
  virtual absl::Status seal(const Publication& publication) = 0;

  // ---- versions: storage thread ----

  // All workers have prepared the version, and none was told to flip yet. An error aborts the version for all. May
  // block as long as storage does: meanwhile nothing aborts the version, and the sender still notices workers that die.
  virtual absl::Status publish(const Publication& publication) = 0;
  // Warnings since the last call, for the report of the send that published last.
  virtual std::vector<std::string> take_warnings() = 0;
  // Whether each version gets a slot of its own, and no slot is written twice.
  virtual bool fresh_slots() const { return false; }
  // Whether versions are to survive a loss of power; if not, persist() is not called.
  virtual bool persists() const = 0;
  // Returns once the published version would survive a loss of power. An error is only a warning: it is published.
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
  // Without a sender: the whole versions above `newer_than` that can be read, the newest first. The core verifies their
  // digests, serves the first that is right and ends the reads of the others.
  virtual absl::StatusOr<std::vector<FoundVersion>> find_versions(Version newer_than) = 0;
  // The digest of such a version, of the bytes in storage; adds to its description. If it is right, bring_in() and
  // prepare() follow. digest_of() and bring_in() may read for long, in pieces. CANCELLED: `stop` was requested
  // meanwhile.
  virtual absl::StatusOr<Digest> digest_of(FoundVersion& found, kernels::ThreadPool& pool,
                                           const std::stop_token& stop) = 0;
  // Reads into memory what prepare() would otherwise have to read.
  virtual absl::Status bring_in(const FoundVersion& found, const std::stop_token& stop) = 0;
};

}  // namespace bascule::inline v0
