// Source: what has a version's bytes, and delivers ranges of them to a worker that copies: the sender's slots
// (SlotSource), or another worker's copy (schemes/relay/engine_buffers.h).
//
//   available(version)   how much of it can be read now
//   read(range, into)    starts to bring a range; into.queue tells how much has arrived, and digests it
//   ~Source()            closes it: waits for the reads under way
//
// A worker checks what arrived by the sender's digest and tables, from every source alike (docs/design/regions.md).
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include <bascule/transport/device.h>
#include <bascule/transport/ranges.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// Where the bytes of a version go: each range to its own offset.
struct Landing {
  std::span<std::byte> memory;  // as long as the version, on the queue's device
  DeviceQueue& queue;           // copies there, in order
  Digesting digesting;          // as for DeviceQueue::copy_in(), which limits the order of ranges
};

class Source {
 public:
  virtual ~Source() = default;
  // Returns how many bytes of the version, from its first, can be read now; nullopt if the source does not have it
  // (yet); an error if nothing can be read from this source. Never waits.
  virtual absl::StatusOr<std::optional<std::uint64_t>> available(const Publication& publication) = 0;
  // Enqueues the read of a range that available() has found. Blocks while memory is registered with the device. Every
  // call must have the same queue.
  virtual absl::Status read(const Publication& publication, const ByteRange& range, const Landing& into) = 0;
};

// Memory of another process, mapped here to copy from.
struct ReachedMemory {
  std::span<const std::byte> bytes;
  int device = kHost;                      // the device whose memory it is
  std::shared_ptr<const void> owner = {};  // owns the mapping; null: it lives longer than its reader
};

// Such memory, in a form that a queue copies from.
class SourceMemory {
 public:
  explicit SourceMemory(ReachedMemory memory) : memory_(std::move(memory)) {}

  std::span<const std::byte> bytes() const { return memory_.bytes; }
  const ReachedMemory& reached() const { return memory_; }
  // Registers the memory with the queue's device; later calls, with the same queue, do nothing. Blocks. Returns how
  // many bytes one copy should have.
  absl::StatusOr<std::uint64_t> reach(DeviceQueue& queue);
  absl::Status read(const ByteRange& range, const Landing& into);

 private:
  ReachedMemory memory_;
  std::shared_ptr<HostWindow> window_;  // destroyed before the memory
};

// The sender's slots, as a scheme has mapped them.
class SlotSource final : public Source {
 public:
  // Keeps the memory of a slot that was added before.
  void add(SlotId slot, ReachedMemory memory, WrittenSoFar written);
  void remove(SlotId slot);

  absl::StatusOr<std::optional<std::uint64_t>> available(const Publication& publication) override;
  absl::Status read(const Publication& publication, const ByteRange& range, const Landing& into) override;

 private:
  absl::StatusOr<std::shared_ptr<SourceMemory>> find(SlotId slot) const;  // the mutex must be held

  std::mutex mutex_;
  std::map<SlotId, std::shared_ptr<SourceMemory>> slots_;
  WrittenSoFar written_;
};

}  // namespace bascule::inline v0
