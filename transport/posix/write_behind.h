// WriteBehind: starts to bring a file to the disk chunk by chunk while the file is still being written, and at the end
// waits until all of it is there. It uses io_uring or, if the system refuses that, plain calls. One thread at a time.
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

  // The method, for reports: "io_uring", or what replaced it and why.
  const std::string& how() const { return how_; }

  // A file is about to be written from its beginning.
  void begin(int fd);
  // The file's first `bytes` are written: starts to bring the whole chunks among them to the disk. Does not wait for
  // the disk.
  void reached(std::uint64_t bytes);
  // The whole file is written: blocks until it is on the disk. Returns DEADLINE_EXCEEDED if it is not there yet.
  absl::Status finish(Deadline deadline);

 private:
  static constexpr std::uint64_t kChunk = std::uint64_t{8} << 20;
  static constexpr unsigned kDepth = 64;  // operations under way

  absl::Status take_completion(Deadline deadline);

  std::optional<Uring> ring_;
  std::string how_;
  int fd_ = -1;
  std::uint64_t file_ = 0;   // counts files: the tag of this one's fsync
  std::uint64_t begun_ = 0;  // bytes whose writing to the disk has started
};

}  // namespace bascule::inline v0
