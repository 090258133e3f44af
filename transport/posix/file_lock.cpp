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

int set_lock(int fd, int type) {
  struct flock whole {};  // from the beginning, of any length
  whole.l_type = static_cast<short>(type);
  whole.l_whence = SEEK_SET;
  while (::fcntl(fd, F_OFD_SETLK, &whole) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace

absl::StatusOr<bool> try_lock(int fd, FileLock lock) {
  const int error = set_lock(fd, lock == FileLock::kShared ? F_RDLCK : F_WRLCK);
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

void unlock(int fd) { set_lock(fd, F_UNLCK); }

bool is_locked(int fd) {
  struct flock in_the_way {};
  in_the_way.l_type = F_WRLCK;
  in_the_way.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_GETLK, &in_the_way) != 0 || in_the_way.l_type != F_UNLCK;
}

}  // namespace bascule::inline v0
