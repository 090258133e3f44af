// RankLine: the socket between rank 0 and another rank of a sharded trainer. Both ends read and write it on their
// public threads, inside a call of the sender, and wait with a deadline. A frame is a length of four bytes,
// little-endian, and so many bytes; descriptors come with its first byte. A forked child does not get the socket, so
// the other end notices when this process is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

class RankLine {
 public:
  // Returns the two ends of a new socket. The second is for another process.
  static absl::StatusOr<std::pair<ProcessFd, ProcessFd>> make_ends();

  explicit RankLine(ProcessFd socket) : socket_(std::move(socket)) {}

  struct Frame {
    std::string bytes;
    std::vector<UniqueFd> descriptors;
  };
  // Both block. UNAVAILABLE: the other end is gone. DEADLINE_EXCEEDED: it did not read, or wrote only a part, in time.
  absl::Status write(std::string_view bytes, Deadline deadline, std::span<const int> descriptors = {});
  absl::StatusOr<Frame> read(Deadline deadline);

  bool other_end_is_gone() const;  // messages that it sent before may still be there to be read
  int descriptor() const { return socket_.get(); }

 private:
  ProcessFd socket_;
};

// Waits until some of `lines` can be read, or their other ends are gone; a null pointer stands for a line that does not
// count. Returns their indices. DEADLINE_EXCEEDED: none could be read in time. CANCELLED: `interrupted`, which may be
// empty, returned true; it is asked every 50 ms.
absl::StatusOr<std::vector<std::size_t>> wait_readable(std::span<RankLine* const> lines, Deadline deadline,
                                                       const std::function<bool()>& interrupted);

}  // namespace bascule::inline v0
