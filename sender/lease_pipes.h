// Lease pipes: how the sender learns that a holder is gone for good. Each welcome hands one end of a pipe to the
// worker, which closes its previous end. When all ends that a worker was given are closed, its process and all of that
// process's children are gone, so its leases end. A welcome may be lost on its way, so the old end keeps the leases
// until the worker has the new one.
//
// Each pipe costs this process a descriptor for as long as any process has its other end. So the pipes of a worker that
// left without a lease are closed (close()), and a worker that keeps collecting pipes is refused (open()).
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/open_by.h>
#include <bascule/transport/slot_ring.h>

namespace bascule::inline v0 {

class LeasePipes {
 public:
  // `on_gone` is called on the I/O thread. `ended`: the holder's process is known to have ended. If not, it is ending
  // now, or is in another pid namespace, or has closed descriptors that it did not open.
  LeasePipes(boost::asio::io_context& io, std::function<void(Holder, bool ended)> on_gone)
      : io_(io), on_gone_(std::move(on_gone)) {}

  // Makes another pipe for `holder`, and returns the end to hand over. Forked children of this process get no copy of
  // that end: a copy would hide the holder's death. `process`: the holder's. RESOURCE_EXHAUSTED: processes still have
  // the other ends of kMostPipes earlier pipes of this holder; the text names them once found() knows them.
  absl::StatusOr<ProcessFd> open(Holder holder, const ProcessMark& process);
  void close(Holder holder) { held_.erase(holder); }  // `on_gone` is not called for it
  void close_all() { held_.clear(); }

  // Finds the processes that still have the other ends of a holder's pipes. It takes three steps, because reading all
  // of /proc can take seconds: search() on the I/O thread, find() on any other thread, and found() on the I/O thread.
  struct Search {
    Holder holder = 0;
    ProcessMark process;
    std::vector<OpenFile> ends;
    bool refuses = false;  // open() refuses another pipe, and needs the names
  };
  struct Found {
    Holder holder = 0;
    std::string who;            // as in "pid 71 (python3)"
    bool left_running = false;  // the holder's process has ended
  };
  // Returns what to search for: each of `left` whose process may have ended, and the holders with kMostPipes pipes.
  std::vector<Search> searches(const std::vector<Holder>& left) const;
  static std::vector<Found> find(const std::vector<Search>& searches);  // reads all of /proc once, or not at all
  // Takes note of the names, for open(). Returns true if the holder's process has ended, but others have its pipes.
  bool found(const Found& found);

  static constexpr std::size_t kMostPipes = 16;  // of one holder

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  boost::asio::io_context& io_;
  std::function<void(Holder, bool)> on_gone_;
  struct Pipe {
    Descriptor end;
    std::optional<OpenFile> file;
  };
  struct Held {
    std::vector<std::shared_ptr<Pipe>> pipes;
    ProcessMark process;
    std::string others{};  // who has the other ends, if found() was told
  };
  std::map<Holder, Held> held_;
};

}  // namespace bascule::inline v0
