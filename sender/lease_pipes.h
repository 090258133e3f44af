// Lease pipes: how the sender learns that a holder is gone for good. Each welcome hands one end of a pipe to the
// worker, which closes its previous end. When all ends that a worker was given are closed, its process and all of that
// process's children are gone, so its leases end. A welcome may be lost on its way, so the old end keeps the leases
// until the worker has the new one.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/slot_ring.h>

namespace bascule::inline v0 {

class LeasePipes {
 public:
  // `on_gone` is called on the I/O thread.
  LeasePipes(boost::asio::io_context& io, std::function<void(Holder)> on_gone)
      : io_(io), on_gone_(std::move(on_gone)) {}

  // Makes another pipe for `holder`, and returns the end to hand over. Forked children of this process get no copy of
  // that end: a copy would hide the holder's death.
  absl::StatusOr<ProcessFd> open(Holder holder);
  void close_all() { pipes_.clear(); }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  boost::asio::io_context& io_;
  std::function<void(Holder)> on_gone_;
  std::map<Holder, std::vector<std::shared_ptr<Descriptor>>> pipes_;
};

}  // namespace bascule::inline v0
