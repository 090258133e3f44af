// The control page: one page of sealed shared memory in which the sender states what each slot holds.
//
//   line 0   | magic 8 | format 4 | slots 4 | epoch 8 | digest number 4 |
//   line 1…  | version 8 | sequence 8 | digest 16 | bytes done 8 | has digest 8 |
//
// A line has 64 bytes. The slot with index i uses line 1 + i modulo kMaxSlots. The sender writes the lines and workers
// read them. `version` is 0 while the slot is being written. `sequence` is odd while the sender changes a line, so that
// a worker notices if it read half of a change.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

inline constexpr std::uint32_t kMaxSlots = 62;  // slots for which one page has lines, at one time

struct alignas(64) SlotLine {
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> sequence;  // grows by two with every change of the line
  std::atomic<std::uint64_t> digest_low, digest_high;
  std::atomic<std::uint64_t> bytes_done;  // length of the complete prefix; release/acquire
  std::atomic<std::uint64_t> has_digest;
};
static_assert(sizeof(SlotLine) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

// The sender's side.
class ControlPage {
 public:
  static absl::StatusOr<ControlPage> make(Epoch epoch);

  int descriptor() const { return memory_.descriptor.get(); }
  void begin(std::uint32_t slot);  // writing begins: no version, no bytes
  std::atomic<std::uint64_t>& bytes_done(std::uint32_t slot);
  void seal(std::uint32_t slot, Version version, std::uint64_t bytes, const std::optional<Digest>& digest);

 private:
  SlotLine& line(std::uint32_t slot);
  SlotMemory memory_;
};

// A line's values at one moment.
struct SlotRecord {
  Version version = 0;
  std::optional<Digest> digest;
  std::uint64_t bytes_done = 0;
};

// The worker's side, read-only.
class ControlPageView {
 public:
  // Returns INVALID_ARGUMENT if `descriptor` is not sealed or not a control page, or if the page has another format,
  // digest function or epoch.
  static absl::StatusOr<ControlPageView> map(UniqueFd descriptor, Epoch epoch);

  // Returns version 0 and no digest while the slot is being written or its line is being changed. Never waits.
  SlotRecord read(std::uint32_t slot) const;

 private:
  Mapping mapping_;
};

}  // namespace bascule::inline v0
