// The interface of schemes whose slots outlive the processes (Scheme::keeps_files): without a sender, readers find the
// newest whole version. schemes/memmap is the example.
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

  // The highest version that earlier senders left, or 0. This sender continues above it.
  virtual Version last_version() const = 0;

  // ---- slots: public thread ----

  // Writing begins; `bytes_done` grows with the complete prefix. UNAVAILABLE: a reader that the ring does not know
  // still reads the slot; the ring makes a new slot instead.
  virtual absl::Status begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline) = 0;
  // The last byte is written. An error aborts the version.
  virtual absl::Status seal(const Publication& publication) = 0;

  // ---- versions: storage thread ----

  // All workers have prepared the version, and none has got `decided` yet. An error aborts the version for all. May
  // block as long as storage does; meanwhile nothing aborts the version, and the sender still notices workers that die.
  virtual absl::Status publish(const Publication& publication) = 0;
  // Warnings since the last call, for the report of the send that published last.
  virtual std::vector<std::string> take_warnings() = 0;
  // Whether each version gets a new slot, so that no slot is written twice.
  virtual bool fresh_slots() const { return false; }
  // Whether versions are to survive a loss of power; if not, persist() is not called.
  virtual bool persists() const = 0;
  // Returns once the published version would survive a loss of power. An error is only a warning: the version is
  // published.
  virtual absl::Status persist(const Publication& publication, Deadline deadline) = 0;
};

// A whole version, found without a sender.
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
  // Without a sender: the readable whole versions above `newer_than`, newest first. The core verifies their digests,
  // serves the first valid one and calls end_read() for the others.
  virtual absl::StatusOr<std::vector<FoundVersion>> find_versions(Version newer_than) = 0;
  // Computes the digest of such a version from the bytes in storage, and adds to its description. If the digest
  // matches, bring_in() and prepare() follow. digest_of() and bring_in() may read for long, in pieces. CANCELLED:
  // `stop` was requested meanwhile.
  virtual absl::StatusOr<Digest> digest_of(FoundVersion& found, kernels::ThreadPool& pool,
                                           const std::stop_token& stop) = 0;
  // Reads into memory the bytes that prepare() would otherwise have to read.
  virtual absl::Status bring_in(const FoundVersion& found, const std::stop_token& stop) = 0;
};

}  // namespace bascule::inline v0
