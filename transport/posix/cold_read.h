// Reads a file once, bypassing the page cache: the bytes come from the disk itself, with several reads in flight, and
// push no other pages out of the cache.
//
// It uses io_uring with O_DIRECT, and reads into a few buffers, which are registered with io_uring if the system's
// limit on locked memory allows it. They are anonymous memory because pages of a mapped file cannot be registered
// (EFAULT). If the system refuses io_uring, it uses plain calls; if the file system has no O_DIRECT, it reads through
// the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0 {

inline constexpr std::size_t kColdPiece = std::size_t{512} << 10;  // whole tiles of the digest
inline constexpr std::uint64_t kColdAlignment = 4096;  // of offsets, buffers and lengths, as O_DIRECT requires

// Passes [offset, offset + bytes) of the file to `take` in pieces of kColdPiece (the last may be shorter), each once
// and in any order. `at` is the piece's distance from `offset`, and `offset` must be a multiple of kColdAlignment.
// Blocks; one call at a time per descriptor. Returns how it read: "io_uring, O_DIRECT, registered buffers". Returns
// OUT_OF_RANGE if the file is shorter, and CANCELLED if `stop` was requested before the last piece was begun; it first
// waits for the pieces under way.
absl::StatusOr<std::string> read_cold(int fd, std::uint64_t offset, std::uint64_t bytes,
                                      absl::FunctionRef<void(std::uint64_t at, std::span<const std::byte>)> take,
                                      const std::stop_token& stop = {});

// How much of one piece is read. A read may end early, and the rest then needs another.
struct PieceProgress {
  std::uint64_t wanted = 0, had = 0;

  // Takes the result of a read that began at `had`: bytes, or minus errno. Returns false once the piece is complete.
  // With `aligned`, rounds `had` down to a multiple of kColdAlignment, so the next read may repeat bytes.
  absl::StatusOr<bool> needs_more(std::int64_t result, bool aligned);
};

}  // namespace bascule::inline v0
