// Locks on a whole file that belong to an open file description (F_OFD_SETLK): they end when its last descriptor is
// closed, also when the process dies, and two descriptions exclude each other even within one process. A descriptor
// that was duplicated or passed on shares its lock.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

enum class FileLock {
  kShared,     // many at a time; the descriptor must be readable
  kExclusive,  // only one, and none shared; the descriptor must be writable
};

// Takes the lock, replacing one that this description already has. Returns false if another description holds it.
absl::StatusOr<bool> try_lock(int fd, FileLock lock);
// Retries until `deadline`, at most a millisecond apart.
absl::StatusOr<bool> try_lock_until(int fd, FileLock lock, Deadline deadline);
void unlock(int fd);

}  // namespace bascule::inline v0
