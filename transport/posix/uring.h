// Uring: a ring of liburing with the few operations that Bascule needs. One thread at a time.
//
// Operations are queued, then submitted by submit() or wait(). Each completes once, in any order, with the tag that it
// was given. A negative result is minus errno, and a read may be short. Descriptors and buffers must stay valid until
// their operation completes; the destructor waits for operations under way.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>

struct io_uring;
struct io_uring_sqe;

namespace bascule::inline v0 {

class Uring {
 public:
  // Returns UNAVAILABLE if the system has no io_uring, or a container forbids it; callers then use plain calls.
  static absl::StatusOr<Uring> make(unsigned entries);
  Uring(Uring&&) noexcept;
  Uring& operator=(Uring&&) noexcept;
  ~Uring();

  // Asks the system to pin `buffers` for read_registered(). Returns false if the system refuses, for example because
  // they exceed its limit on locked memory.
  bool register_buffers(std::span<const iovec> buffers);

  // At most `entries` operations may be queued or under way at a time.
  void read(int fd, std::span<std::byte> into, std::uint64_t offset, std::uint64_t tag);
  void read_registered(int fd, std::span<std::byte> into, std::uint64_t offset, unsigned buffer, std::uint64_t tag);
  void start_writeback(int fd, std::uint64_t offset, std::uint64_t bytes, std::uint64_t tag);  // sync_file_range
  void sync_after_all(int fd, std::uint64_t tag);  // fsync, begun once all earlier operations have ended

  absl::Status submit();

  struct Completion {
    std::uint64_t tag = 0;
    int result = 0;
  };
  // Submits what is queued, and blocks until the next completion. Returns nullopt at the deadline.
  absl::StatusOr<std::optional<Completion>> wait(Deadline deadline);
  unsigned under_way() const { return under_way_; }  // operations queued or submitted, and not complete

 private:
  struct Close {
    void operator()(io_uring* ring) const;
  };
  explicit Uring(std::unique_ptr<io_uring, Close> ring) : ring_(std::move(ring)) {}
  io_uring_sqe* next();

  std::unique_ptr<io_uring, Close> ring_;
  unsigned under_way_ = 0;
};

}  // namespace bascule::inline v0
