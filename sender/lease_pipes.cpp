#include "sender/lease_pipes.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "transport/text.h"

namespace bascule {

absl::StatusOr<UniqueFd> LeasePipes::open(Holder holder) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return errno_status(errno, "open a lease pipe");
  const auto ours = std::make_shared<Descriptor>(io_, ends[0]);
  UniqueFd theirs(ends[1]);
  pipes_[holder].push_back(ours);
  // Nothing is ever written: readable means hung up.
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

}  // namespace bascule
