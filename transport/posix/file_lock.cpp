#include <bascule/transport/posix/file_lock.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

struct flock lock_of(int type, LockedByte byte) {
  struct flock lock {};  // from the beginning, of any length
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  if (byte) lock.l_start = static_cast<off_t>(*byte), lock.l_len = 1;
  return lock;
}

int set_lock(int fd, struct flock lock) {
  while (::fcntl(fd, F_OFD_SETLK, &lock) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace

absl::StatusOr<bool> try_lock(int fd, FileLock lock, LockedByte byte) {
  const int error = set_lock(fd, lock_of(lock == FileLock::kShared ? F_RDLCK : F_WRLCK, byte));
  if (error == 0) return true;
  if (error == EAGAIN || error == EACCES) return false;
  return errno_status(error, cat("lock ", path_of_file(fd), " (does its file system support locks?)"));
}

absl::StatusOr<bool> try_lock_until(int fd, FileLock lock, Deadline deadline) {
  for (std::chrono::microseconds pause{50};; pause = std::min(2 * pause, std::chrono::microseconds{1000})) {
    absl::StatusOr<bool> taken = try_lock(fd, lock);
    if (!taken.ok() || *taken || deadline.passed()) return taken;
    std::this_thread::sleep_for(pause);
  }
}

void unlock(int fd, LockedByte byte) { set_lock(fd, lock_of(F_UNLCK, byte)); }

bool is_locked(int fd) {
  struct flock in_the_way = lock_of(F_WRLCK, std::nullopt);
  return ::fcntl(fd, F_OFD_GETLK, &in_the_way) != 0 || in_the_way.l_type != F_UNLCK;
}

}  // namespace bascule::inline v0
