// SharedTable: a slot's digest table while several ranks write the slot, in memory that all of them map. A rank stores
// the totals of the tiles that it writes alone, and marks these tiles. The other tiles are digested once all ranks have
// written, each by one of them.
//
//   | total of tile 0, 16 bytes | … | mark of tile 0, 1 byte | … |
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/mapping.h>

namespace bascule::inline v0 {

class SharedTable {
 public:
  static absl::StatusOr<SharedTable> make(std::uint64_t slot_bytes);
  // The same table, in another process. INVALID_ARGUMENT: it has another size.
  static absl::StatusOr<SharedTable> map(int descriptor, std::uint64_t slot_bytes);

  int descriptor() const { return descriptor_.get(); }
  std::span<kernels::TileTotal> totals();
  std::span<std::uint8_t> marks();  // 1: one rank writes all of this tile

  // Fills the totals of this rank's share of the tiles without a mark: of every `ranks` of them, the one with number
  // `rank`. Blocks; uses all threads of `pool`.
  void digest_share(std::span<const std::byte> slot, std::size_t rank, std::size_t ranks, kernels::ThreadPool& pool);

  // Returns the sum of all totals, and copies them to `to` unless that is empty. A model of 16 GB has 4 MB of them.
  kernels::TileTotal add_up(std::span<kernels::TileTotal> to, kernels::ThreadPool& pool);

 private:
  SharedTable(ProcessFd descriptor, Mapping mapping, std::size_t tiles)
      : descriptor_(std::move(descriptor)), mapping_(std::move(mapping)), tiles_(tiles) {}

  ProcessFd descriptor_;  // of the process that made it
  Mapping mapping_;
  std::size_t tiles_;
};

}  // namespace bascule::inline v0
