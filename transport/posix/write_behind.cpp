#include <bascule/transport/posix/write_behind.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
WriteBehind::WriteBehind() {
  absl::StatusOr<Uring> ring = Uring::make(kDepth);
  if (ring.ok()) {
    ring_.emplace(*std::move(ring));
    how_ = "io_uring";
  } else {
    how_ = cat("plain calls (", message_of(ring.status()), ")");
  }
}

void WriteBehind::begin(int fd) {
  fd_ = fd;
  begun_ = 0;
  ++file_;
}

void WriteBehind::reached(std::uint64_t bytes) {
  for (; bytes - begun_ >= kChunk; begun_ += kChunk) {
    // An early start is only an optimisation: the fsync of finish() reports errors.
    if (!ring_) {
      ::sync_file_range(fd_, static_cast<off_t>(begun_), kChunk, SYNC_FILE_RANGE_WRITE);
      continue;
    }
    if (ring_->under_way() >= kDepth - 1 && !take_completion(Deadline(absl::InfiniteDuration())).ok()) return;
    ring_->start_writeback(fd_, begun_, kChunk, 0);
  }
  if (ring_) (void)ring_->submit();  // otherwise finish() submits, and reports errors
}

// Takes one completion of any kind. Ignores the fsync of an earlier file whose deadline passed.
absl::Status WriteBehind::take_completion(Deadline deadline) {
  BASCULE_ASSIGN(const std::optional<Uring::Completion> done, ring_->wait(deadline));
  if (!done) return deadline_exceeded("the disk did not take all of it in time");
  if (done->tag == file_ && done->result < 0) return errno_status(-done->result, cat("fsync ", path_of_file(fd_)));
  return absl::OkStatus();
}

absl::Status WriteBehind::finish(Deadline deadline) {
  if (!ring_) return ::fsync(fd_) == 0 ? absl::OkStatus() : errno_status(errno, cat("fsync ", path_of_file(fd_)));
  ring_->sync_after_all(fd_, file_);
  while (ring_->under_way() > 0) BASCULE_TRY(take_completion(deadline));
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
