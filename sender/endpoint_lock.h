// sender.lock: allows one sender per endpoint, and keeps the numbers that outlive it.
//
// The file is locked for the sender's life (flock: the lock ends with the process; forked children do not keep it, and
// a child of posix_spawn only until its program starts) and holds the pid, the epoch and the last version in one
// fixed-size line. The next sender takes epoch + 1 and continues above that version. The first one takes the Unix time
// in microseconds as its epoch. So even if the file is lost while engines live on, a new run gets another epoch than
// the run that they serve, however soon it begins. (If the clock was also set back, the new epoch is lower than theirs,
// and both ends refuse each other.)
#pragma once

#include <unistd.h>

#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

class EndpointLock {
 public:
  // `folder` is the endpoint's (make_private_folder()), and `file` the lock's path in it, for texts. Returns
  // ALREADY_EXISTS, naming the process that holds the lock, or DATA_LOSS if the file is not a valid sender.lock; the
  // text says what to do.
  static absl::StatusOr<EndpointLock> take(UniqueFd folder, std::filesystem::path file);

  EndpointLock(EndpointLock&& other) noexcept = default;
  EndpointLock& operator=(EndpointLock&&) = delete;
  ~EndpointLock();  // unlocks at once, even if a child of this process has not started its program yet

  int folder() const { return folder_.get(); }  // the descriptor of the endpoint's folder
  Epoch epoch() const { return epoch_; }
  Version last_version() const { return last_version_; }

  // Writes a version down before it is announced, so that no number is used twice. Returns FAILED_PRECONDITION if it is
  // not above the last one. May wait for the file system.
  absl::Status record(Version version);

 private:
  EndpointLock() = default;
  absl::Status write(Version version);
  UniqueFd folder_;
  std::filesystem::path file_;
  ProcessFd fd_;
  pid_t owner_ = ::getpid();
  Epoch epoch_ = 0;
  Version last_version_ = 0;
};

}  // namespace bascule::inline v0
