#include <bascule/sender/lease_pipes.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<ProcessFd> LeasePipes::open(Holder holder, const ProcessMark& process) {
  if (const auto held = held_.find(holder); held != held_.end() && held->second.pipes.size() >= kMostPipes)
    return absl::ResourceExhaustedError(cat(
        "it has joined ", kMostPipes, " times, and processes that it forked meanwhile still hold its earlier leases: ",
        others_with(held->second), "; stop them"));
  std::array<int, 2> ends{-1, -1};
  ProcessFd theirs =
      ProcessFd::make([&ends] { return ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0 ? ends[1] : -1; });
  if (!theirs) return errno_status(errno, "open a lease pipe");
  UniqueFd end(ends[0]);
  const auto ours = std::make_shared<Descriptor>(io_);
  ours->assign(end.release());
  Held& kept = held_[holder];
  kept.process = process;
  kept.pipes.reserve(kept.pipes.size() + 1);
  // Nothing is ever written to it: readable means hung up.
  ours->async_wait(Descriptor::wait_read,
                   [this, holder, watched = std::weak_ptr(ours)](const boost::system::error_code& error) {
                     const auto pipe = watched.lock();
                     const auto held = held_.find(holder);
                     if (error || !pipe || held == held_.end()) return;
                     std::erase(held->second.pipes, pipe);
                     if (!held->second.pipes.empty()) return;
                     held_.erase(held);
                     on_gone_(holder);
                   });
  kept.pipes.push_back(ours);
  return theirs;
}

std::optional<std::string> LeasePipes::left_running(Holder holder) {
  const auto held = held_.find(holder);
  if (held == held_.end() || !has_ended(held->second.process)) return std::nullopt;
  return others_with(held->second);
}

std::string LeasePipes::others_with(const Held& held) {
  std::vector<int> ends;
  for (const auto& pipe : held.pipes) ends.push_back(pipe->native_handle());
  const std::vector<Process> others = others_with_open(ends);
  return others.empty() ? "a process that /proc does not show" : names_of(others);
}

}  // namespace bascule::inline v0
