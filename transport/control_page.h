// The control page: sealed shared memory in which the sender states what each slot holds. If the sender makes digest
// tables, pages for those follow; only the tables of slots that exist take memory.
//
//   line 0   | magic 8 | format 4 | slots 4 | epoch 8 | digest number 4 | 0, 4 | tiles of a slot's digest table 8 |
//   line 1…  | version 8 | sequence 8 | digest 16 | bytes done 8 | has digest 8; 2: and a digest table |
//   page 1…  | digest table of the slot with line 1 | of the slot with line 2 | …        each in whole pages
//
// A line has 64 bytes. The slot with index i uses line 1 + i modulo kMaxSlots. The sender writes the lines and workers
// read them. `version` is 0 while the slot is being written. `sequence` is odd while the sender changes a line, so that
// a worker notices if it read half of a change.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/digest_table.h>
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
  // With digest tables of `tiles` tiles per slot; 0: without.
  static absl::StatusOr<ControlPage> make(Epoch epoch, std::uint64_t tiles = 0);

  int descriptor() const { return memory_.descriptor.get(); }
  void begin(std::uint32_t slot);  // writing begins: no version, no bytes
  std::atomic<std::uint64_t>& bytes_done(std::uint32_t slot);
  // Allocates the slot's digest table. Returns RESOURCE_EXHAUSTED if memory is short. Call it once per slot, before
  // table().
  absl::Status add_table(std::uint32_t slot);
  // The slot's digest table; empty without tables.
  std::span<kernels::TileTotal> table(std::uint32_t slot);
  // The same, for the pass that makes the digest to fill. Without this call between begin() and seal(), the version has
  // no table.
  std::span<kernels::TileTotal> fill_table(std::uint32_t slot);
  void seal(std::uint32_t slot, Version version, std::uint64_t bytes, const std::optional<Digest>& digest);

 private:
  SlotLine& line(std::uint32_t slot);
  SlotMemory memory_;
  std::uint64_t tiles_ = 0;
  std::array<bool, kMaxSlots> filled_{};  // tables, by line
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
  // Returns a copy of the slot's digest table, or nothing if the slot is not sealed with a digest, or its version has
  // no table. It belongs to the digest of read() only if it adds up to it (Regions::check()).
  // The copy reuses `memory`, if there is some: new memory for it takes longer than the copy. If `sum` is given, it
  // gets the sum of the copy.
  std::optional<std::vector<kernels::TileTotal>> table(std::uint32_t slot, std::vector<kernels::TileTotal> memory = {},
                                                       kernels::TileTotal* sum = nullptr) const;

 private:
  Mapping mapping_;
  std::uint64_t tiles_ = 0;
};

}  // namespace bascule::inline v0
