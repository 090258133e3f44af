// sender.lock: one sender an endpoint, and the numbers that outlive it.
//
// The file is locked for the sender's life (flock: it falls with the process, whose forked children do not keep it) and
// holds, in one fixed-size line, the
// pid, the epoch and the last version. The next sender takes epoch + 1 and continues above that version. The first one
// takes the Unix time in microseconds as its epoch: where the file is lost while engines live on, a new run is still
// told from the one that they serve, however soon it begins. (Where the clock was set back as well, its epoch is lower
// than theirs, and both ends refuse each other.)
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

class EndpointLock {
 public:
  // ALREADY_EXISTS names the process that holds it. DATA_LOSS: the file does not read as a sender.lock; it says
  // what to do.
  static absl::StatusOr<EndpointLock> take(const std::filesystem::path& file);

  Epoch epoch() const { return epoch_; }
  Version last_version() const { return last_version_; }

  // Writes a version down, before it is announced: a number is never used twice. FAILED_PRECONDITION: it is not above
  // the last one. May wait for the file system.
  absl::Status record(Version version);

 private:
  absl::Status write(Version version);
  ProcessFd fd_;
  Epoch epoch_ = 0;
  Version last_version_ = 0;
};

}  // namespace bascule::inline v0
