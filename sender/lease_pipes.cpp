#include <bascule/sender/lease_pipes.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <bascule/transport/caught.h>
#include <bascule/transport/descriptor_limit.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr absl::Duration kLongestSearch = absl::Seconds(5);  // the sender's end waits for it

}  // namespace

absl::StatusOr<ProcessFd> LeasePipes::open(Holder holder, const ProcessMark& process) {
  if (const auto held = held_.find(holder); held != held_.end() && held->second.pipes.size() >= kMostPipes)
    return absl::ResourceExhaustedError(cat(
        "it has joined ", kMostPipes, " times, and processes that it forked meanwhile still hold its earlier leases: ",
        held->second.others.empty() ? "their names are being looked for" : held->second.others, "; stop them"));
  std::array<int, 2> ends{-1, -1};
  ProcessFd theirs =
      ProcessFd::make([&ends] { return ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0 ? ends[1] : -1; });
  if (!theirs) return errno_status(errno, "open a lease pipe");
  UniqueFd end(ends[0]);
  const auto ours = std::make_shared<Pipe>(Pipe{.end = Descriptor(io_), .file = open_file(end.get())});
  ours->end.assign(end.release());
  Held& kept = held_[holder];
  kept.process = process;
  kept.others.clear();
  kept.pipes.reserve(kept.pipes.size() + 1);
  // Nothing is ever written to it: readable means hung up.
  ours->end.async_wait(Descriptor::wait_read,
                       [this, holder, watched = std::weak_ptr(ours)](const boost::system::error_code& error) {
                         const auto pipe = watched.lock();
                         const auto held = held_.find(holder);
                         if (error || !pipe || held == held_.end()) return;
                         std::erase(held->second.pipes, pipe);
                         if (!held->second.pipes.empty()) return;
                         bool ended = false;  // without memory it is not known
                         static_cast<void>(caught([&] { ended = has_ended(held->second.process); }));
                         held_.erase(held);
                         on_gone_(holder, ended);
                       });
  kept.pipes.push_back(ours);
  return theirs;
}

std::vector<LeasePipes::Search> LeasePipes::searches(const std::vector<Holder>& left) const {
  std::vector<Search> searches;
  const auto add = [&](Holder holder, const Held& held, bool refuses) {
    Search& search =
        searches.emplace_back(Search{.holder = holder, .process = held.process, .ends = {}, .refuses = refuses});
    for (const auto& pipe : held.pipes)
      if (pipe->file) search.ends.push_back(*pipe->file);
  };
  for (const Holder holder : left)
    if (const auto held = held_.find(holder); held != held_.end()) add(holder, held->second, false);
  for (const auto& [holder, held] : held_)
    if (held.pipes.size() >= kMostPipes && held.others.empty()) add(holder, held, true);
  return searches;
}

std::vector<LeasePipes::Found> LeasePipes::find(const std::vector<Search>& searches) {
  std::vector<Found> found;
  if (why_no_descriptor() != 0) return found;  // /proc would show nothing; the next search may
  std::vector<OpenFile> ends;
  std::vector<std::size_t> first;  // in `ends`, of each in `found`
  for (const Search& search : searches) {
    const bool ended = has_ended(search.process);
    if (!ended && !search.refuses) continue;
    found.push_back({.holder = search.holder, .who = {}, .left_running = ended});
    first.push_back(ends.size());
    ends.insert(ends.end(), search.ends.begin(), search.ends.end());
  }
  const std::vector<std::vector<Process>> others = others_with_open(ends, Deadline(kLongestSearch));
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::map<pid_t, Process> with;
    for (std::size_t end = first[i]; end < (i + 1 < first.size() ? first[i + 1] : ends.size()); ++end)
      for (const Process& process : others[end]) with.emplace(process.pid, process);
    std::vector<Process> processes;
    processes.reserve(with.size());
    for (auto& [pid, process] : with) processes.push_back(std::move(process));
    found[i].who = processes.empty() ? "a process that /proc does not show" : names_of(processes);
  }
  return found;
}

// The pipes may have hung up since the search: then on_gone_ is about to be called.
bool LeasePipes::found(const Found& found) {
  const auto held = held_.find(found.holder);
  if (held == held_.end()) return false;
  held->second.others = found.who;
  const auto has_other_end = [](const std::shared_ptr<Pipe>& pipe) {
    pollfd polled{.fd = pipe->end.native_handle(), .events = POLLIN, .revents = 0};
    return ::poll(&polled, 1, 0) == 0;
  };
  return found.left_running && std::ranges::any_of(held->second.pipes, has_other_end);
}

}  // namespace bascule::inline v0
