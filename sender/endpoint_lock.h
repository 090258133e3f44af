// sender.lock: one sender an endpoint, and the numbers that outlive it.
//
// The file is locked for the sender's life (flock: it falls with the process) and holds, in one fixed-size line, the
// pid, the epoch and the last version. The next sender takes epoch + 1 and continues above that version. The first one
// takes the Unix time in seconds as its epoch: where the file is lost while engines live on, a new run is still told
// from the one that they serve.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/posix/unique_fd.h"
#include "transport/version.h"

namespace bascule {

class EndpointLock {
 public:
  // ALREADY_EXISTS names the pid that holds it. DATA_LOSS: the file does not read as a sender.lock; it says
  // what to do.
  static absl::StatusOr<EndpointLock> take(const std::filesystem::path& file);

  Epoch epoch() const { return epoch_; }
  Version last_version() const { return last_version_; }

  // Writes a version down, before it is published: a number is never used twice.
  absl::Status record(Version version);

 private:
  UniqueFd fd_;
  Epoch epoch_ = 0;
  Version last_version_ = 0;
};

}  // namespace bascule
