#include <bascule/sender/lease_pipes.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<ProcessFd> LeasePipes::open(Holder holder) {
  std::array<int, 2> ends{-1, -1};
  ProcessFd theirs =
      ProcessFd::make([&ends] { return ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0 ? ends[1] : -1; });
  if (!theirs) return errno_status(errno, "open a lease pipe");
  const auto ours = std::make_shared<Descriptor>(io_, ends[0]);
  pipes_[holder].push_back(ours);
  // Nothing is ever written to it: readable means hung up.
  ours->async_wait(Descriptor::wait_read,
                   [this, holder, watched = std::weak_ptr(ours)](const boost::system::error_code& error) {
                     const auto pipe = watched.lock();
                     const auto held = pipes_.find(holder);
                     if (error || !pipe || held == pipes_.end()) return;
                     std::erase(held->second, pipe);
                     if (!held->second.empty()) return;
                     pipes_.erase(held);
                     on_gone_(holder);
                   });
  return theirs;
}

}  // namespace bascule::inline v0
