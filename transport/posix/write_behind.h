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

  // Call it when a file is about to be written from its beginning.
  void begin(int fd);
  // Call it when the file's first `bytes` are written. Starts to bring the whole chunks among them to the disk, without
  // waiting for the disk.
  void reached(std::uint64_t bytes);
  // Call it when the whole file is written. Blocks until it is on the disk, or returns DEADLINE_EXCEEDED.
  absl::Status finish(Deadline deadline);

 private:
  static constexpr std::uint64_t kChunk = std::uint64_t{8} << 20;
  static constexpr unsigned kDepth = 64;  // operations under way

  absl::Status take_completion(Deadline deadline);

  std::optional<Uring> ring_;
  std::string how_;
  int fd_ = -1;
  std::uint64_t file_ = 0;   // the number of this file, which tags its fsync
  std::uint64_t begun_ = 0;  // bytes whose writing to the disk has started
};

}  // namespace bascule::inline v0
