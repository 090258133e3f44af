// The progress page: one page of sealed shared memory. In it an engine shows which version each of its receive buffers
// holds, and how many bytes of that version have come. Other engines copy only these bytes.
//
//   line 0   | magic 8 |
//   line 1…  | version 8 | bytes done 8 | digest 16 | whether digested 8 |      one for each buffer that it shows
//
// A line has 64 bytes. The engine stores, others load. A buffer from which others copy is spared (messages.h): its line
// keeps the version as long as they copy.
//
// A lease on a buffer is a shared lock on the first byte of its line, held by an engine that reads the buffer in place.
// The kernel ends it with the engine's process. The owner takes a version away from the page before it looks for
// leases, and an engine looks for the version again once it has its lock, so one of the two sees the other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/schemes/relay/messages.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0::relay {

// Whether the engine has digested all of its copy.
enum class Digested : std::uint64_t { kNotYet, kYes, kNever };

struct alignas(64) ProgressLine {
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> bytes_done;
  std::atomic<std::uint64_t> low, high;
  std::atomic<Digested> digested;
};
static_assert(sizeof(ProgressLine) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

// The engine's side.
class ProgressPage {
 public:
  static absl::StatusOr<ProgressPage> make();

  int descriptor() const { return memory_.descriptor.get(); }
  // Shows the version with 0 bytes. If another buffer holds that version, from an earlier connection, that buffer is no
  // longer shown.
  void begin(std::size_t buffer, Version version);
  void advance(std::size_t buffer, std::uint64_t bytes_done);
  void show_digest(std::size_t buffer, const std::optional<Digest>& digest);  // of all its bytes; nullopt: none is made
  void clear(std::size_t buffer);
  // Whether another engine has a lease on it. Call clear() first.
  bool is_leased(std::size_t buffer) const;

 private:
  ProgressLine& line(std::size_t buffer);
  SlotMemory memory_;
};

// Another engine's side, read-only.
class ProgressView {
 public:
  // Returns INVALID_ARGUMENT if it is not sealed, or is not a progress page.
  static absl::StatusOr<ProgressView> map(int fd);

  struct Progress {
    std::size_t buffer = 0;
    std::uint64_t bytes_done = 0;
    Digested digested = Digested::kNotYet;
    Digest digest{};  // as the engine found it
  };
  // Returns nullopt if no buffer holds or receives that version. Never waits.
  std::optional<Progress> find(Version version) const;
  // Takes a lease on a buffer, which ends when the result is closed. Call find() again afterwards.
  absl::StatusOr<ProcessFd> lease(std::size_t buffer) const;

 private:
  ProcessFd descriptor_;
  Mapping mapping_;
};

}  // namespace bascule::inline v0::relay
