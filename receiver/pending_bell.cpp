#include <bascule/receiver/pending_bell.h>

#include <sys/eventfd.h>

#include <cerrno>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<int> PendingBell::descriptor() {
  if (!descriptor_) {
    descriptor_ = UniqueFd(::eventfd(readable_ ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!descriptor_) return errno_status(errno, "pending_fd: make an eventfd");
  }
  return descriptor_.get();
}

// It writes even if the descriptor should be readable already: the user may have read it.
void PendingBell::set(bool readable) {
  readable_ = readable;
  if (!descriptor_) return;
  eventfd_t ignored = 0;
  readable ? ::eventfd_write(descriptor_.get(), 1) : ::eventfd_read(descriptor_.get(), &ignored);
}

}  // namespace bascule::inline v0
