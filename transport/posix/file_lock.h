// Locks on a whole file that belong to an open file description (F_OFD_SETLK): they fall when its last descriptor is
// closed, also by the death of the process, and two descriptions exclude each other within one process, too. A
// descriptor that was duplicated or passed on shares its lock.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

enum class FileLock {
  kShared,     // many at a time; the descriptor must be readable
  kExclusive,  // one, and no other process shares; the descriptor must be writable
};

// Takes the lock, in place of one that this description has already. False: another description holds it.
absl::StatusOr<bool> try_lock(int fd, FileLock lock);
// Tries again, at most a millisecond apart, until `deadline`.
absl::StatusOr<bool> try_lock_until(int fd, FileLock lock, Deadline deadline);
void unlock(int fd);

}  // namespace bascule::inline v0
