#include <bascule/transport/posix/uring.h>

#include <liburing.h>

#include <cerrno>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Uring::Close::operator()(io_uring* ring) const {
  ::io_uring_queue_exit(ring);
  delete ring;  // NOLINT(cppcoreguidelines-owning-memory): this is the owner
}

absl::StatusOr<Uring> Uring::make(unsigned entries) {
  auto made = std::make_unique<io_uring>();
  if (const int error = ::io_uring_queue_init(entries, made.get(), 0); error != 0)
    return unavailable("the system refuses io_uring: ", message_of(errno_status(-error, "io_uring_setup")));
  return Uring(std::unique_ptr<io_uring, Close>(made.release()));
}

Uring::Uring(Uring&& other) noexcept : ring_(std::move(other.ring_)), under_way_(std::exchange(other.under_way_, 0)) {}

Uring& Uring::operator=(Uring&& other) noexcept {
  std::swap(ring_, other.ring_);
  std::swap(under_way_, other.under_way_);
  return *this;
}

// Waits, because the kernel uses buffers and descriptors that their owners may free once this has returned.
Uring::~Uring() {
  if (!ring_) return;
  ::io_uring_submit(ring_.get());
  io_uring_cqe* completion = nullptr;
  while (under_way_ > 0) {
    const int error = ::io_uring_wait_cqe(ring_.get(), &completion);
    if (error == -EINTR) continue;
    if (error != 0) return;
    ::io_uring_cqe_seen(ring_.get(), completion);
    --under_way_;
  }
}

bool Uring::register_buffers(std::span<const iovec> buffers) {
  return ::io_uring_register_buffers(ring_.get(), buffers.data(), static_cast<unsigned>(buffers.size())) == 0;
}

io_uring_sqe* Uring::next() {
  io_uring_sqe* entry = ::io_uring_get_sqe(ring_.get());
  if (entry == nullptr) {  // full of unsubmitted operations
    ::io_uring_submit(ring_.get());
    entry = ::io_uring_get_sqe(ring_.get());
  }
  ++under_way_;
  return entry;
}

void Uring::read(int fd, std::span<std::byte> into, std::uint64_t offset, std::uint64_t tag) {
  io_uring_sqe* const entry = next();
  ::io_uring_prep_read(entry, fd, into.data(), static_cast<unsigned>(into.size()), offset);
  entry->user_data = tag;
}

void Uring::read_registered(int fd, std::span<std::byte> into, std::uint64_t offset, unsigned buffer,
                            std::uint64_t tag) {
  io_uring_sqe* const entry = next();
  ::io_uring_prep_read_fixed(entry, fd, into.data(), static_cast<unsigned>(into.size()), offset,
                             static_cast<int>(buffer));
  entry->user_data = tag;
}

void Uring::start_writeback(int fd, std::uint64_t offset, std::uint64_t bytes, std::uint64_t tag) {
  io_uring_sqe* const entry = next();
  ::io_uring_prep_sync_file_range(entry, fd, static_cast<unsigned>(bytes), offset, SYNC_FILE_RANGE_WRITE);
  entry->user_data = tag;
}

void Uring::sync_after_all(int fd, std::uint64_t tag) {
  io_uring_sqe* const entry = next();
  ::io_uring_prep_fsync(entry, fd, 0);
  entry->flags |= IOSQE_IO_DRAIN;
  entry->user_data = tag;
}

absl::Status Uring::submit() {
  int submitted = 0;
  do {
    submitted = ::io_uring_submit(ring_.get());
  } while (submitted == -EINTR);
  return submitted >= 0 ? absl::OkStatus() : errno_status(-submitted, "submit to io_uring");
}

absl::StatusOr<std::optional<Uring::Completion>> Uring::wait(Deadline deadline) {
  BASCULE_TRY(submit());
  while (true) {
    const absl::Duration left = std::max(deadline.left(), absl::ZeroDuration());
    __kernel_timespec timeout{.tv_sec = absl::ToInt64Seconds(left),
                              .tv_nsec = absl::ToInt64Nanoseconds(left % absl::Seconds(1))};
    io_uring_cqe* completion = nullptr;
    const int error = ::io_uring_wait_cqe_timeout(ring_.get(), &completion, &timeout);
    if (error == -EINTR) continue;
    if (error == -ETIME) return std::nullopt;
    if (error != 0) return errno_status(-error, "wait for io_uring");
    const Completion done{.tag = completion->user_data, .result = completion->res};
    ::io_uring_cqe_seen(ring_.get(), completion);
    --under_way_;
    return done;
  }
}

}  // namespace bascule::inline v0
