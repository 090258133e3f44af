// Reading a file once, past the page cache: it reads what the disk holds, at the disk's own depth, and displaces no
// pages from the cache.
//
// By io_uring with O_DIRECT into a few buffers of anonymous memory, registered where the system's limit on locked
// memory allows it (the pages of a file's mapping cannot be: EFAULT). Where the system refuses io_uring, by plain
// calls; where the file system has no O_DIRECT, through the page cache.
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
inline constexpr std::uint64_t kColdAlignment = 4096;              // of O_DIRECT: offsets, buffers, lengths

// Gives [offset, offset + bytes) of the file to `take`, each piece of kColdPiece (the last may be shorter) once and in
// any order, with its distance from `offset`, which is a multiple of kColdAlignment. Blocks; one call at a time on a
// descriptor. The answer says how it was read: "io_uring, O_DIRECT, registered buffers". OUT_OF_RANGE: the file is
// shorter. CANCELLED: `stop` was asked for before the last piece was begun; those under way are waited for.
absl::StatusOr<std::string> read_cold(int fd, std::uint64_t offset, std::uint64_t bytes,
                                      absl::FunctionRef<void(std::uint64_t at, std::span<const std::byte>)> take,
                                      const std::stop_token& stop = {});

// What is missing of one piece whose reads may end early.
struct PieceProgress {
  std::uint64_t wanted = 0, had = 0;

  // Takes the result of a read from `had` on: bytes, or minus errno. False: the piece is there. With `aligned` the next
  // read begins on kColdAlignment again, and what lies before it is read twice.
  absl::StatusOr<bool> needs_more(std::int64_t result, bool aligned);
};

}  // namespace bascule::inline v0
