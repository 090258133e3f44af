// Locks on a file, each owned by an open file description (F_OFD_SETLK). A lock ends when the description's last
// descriptor is closed, including by the death of the process. Two descriptions exclude each other even within one
// process, while descriptors that were duplicated or passed on share one lock.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

enum class FileLock {
  kShared,     // many at a time; the descriptor must be readable
  kExclusive,  // one at a time, and no shared ones; the descriptor must be writable
};

// What a lock covers: one byte, which need not be in the file, or the whole file, of any length.
using LockedByte = std::optional<std::uint64_t>;

// Takes the lock, replacing any that this description already has there. Returns false if another description's lock is
// in the way.
absl::StatusOr<bool> try_lock(int fd, FileLock lock, LockedByte byte = std::nullopt);
// Retries try_lock() until `deadline`, with pauses of at most a millisecond.
absl::StatusOr<bool> try_lock_until(int fd, FileLock lock, Deadline deadline);
void unlock(int fd, LockedByte byte = std::nullopt);
// Whether another description has a lock on the file, of either kind, or the system does not tell. `fd` may be
// read-only.
bool is_locked(int fd);

}  // namespace bascule::inline v0
