// Lease pipes: how the sender learns that a reader is gone for good. Each welcome hands one end of a pipe to
// the worker, who lets go of the one that he had before; when none of his is left, that process and its children are
// gone, and their leases with them. A welcome may be lost on its way: until he has the new one, the old one tells of
// him.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/posix/unique_fd.h"
#include "transport/slot_ring.h"

namespace bascule {

class LeasePipes {
 public:
  // `on_gone` is called on the I/O thread.
  LeasePipes(boost::asio::io_context& io, std::function<void(Holder)> on_gone)
      : io_(io), on_gone_(std::move(on_gone)) {}

  // A new pipe for `holder`, beside those that he has: the end to hand over.
  absl::StatusOr<UniqueFd> open(Holder holder);
  void close_all() { pipes_.clear(); }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  boost::asio::io_context& io_;
  std::function<void(Holder)> on_gone_;
  std::map<Holder, std::vector<std::shared_ptr<Descriptor>>> pipes_;
};

}  // namespace bascule
