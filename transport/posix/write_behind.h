// WriteBehind: brings a file to the disk while it is still being written, chunk by chunk behind the writer, and then
// says when all of it is there. By io_uring; where the system refuses that, by plain calls. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/uring.h>

namespace bascule::inline v0 {

class WriteBehind {
 public:
  WriteBehind();

  // How it does it, for reports: "io_uring", or what took its place and why.
  const std::string& how() const { return how_; }

  // A file is about to be written from its beginning.
  void begin(int fd);
  // Its first `bytes` are written: has the disk begin with the whole chunks among them. Waits for no disk.
  void reached(std::uint64_t bytes);
  // All of it is written: returns once it is on the disk, with everything that was begun. DEADLINE_EXCEEDED: not yet.
  absl::Status finish(Deadline deadline);

 private:
  static constexpr std::uint64_t kChunk = std::uint64_t{8} << 20;
  static constexpr unsigned kDepth = 64;  // operations under way

  absl::Status take_completion(Deadline deadline);

  std::optional<Uring> ring_;
  std::string how_;
  int fd_ = -1;
  std::uint64_t file_ = 0;   // counts files: the tag of this one's fsync
  std::uint64_t begun_ = 0;  // bytes that the disk was asked to begin with
};

}  // namespace bascule::inline v0
