// FakeFleet: many workers in one process that speak the real protocol over real sockets and read no weights, to measure
// and test a sender with a thousand workers on one machine.
//
// Each worker is a connection: it greets, answers prepare, sealed and decided like a receiver, releases the previous
// version's slot, keeps its lease pipe and sends heartbeats. Unlike a receiver it never reconnects.
//
// Threads: all calls and all work happen on the thread that calls run_until().
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/wire/channel.h>

namespace bascule::bench {

class FakeFleet {
 public:
  // `expected` goes into every worker's greeting; if it is empty, workers take any tensors.
  FakeFleet(Endpoint endpoint, std::vector<TensorSpec> expected);
  ~FakeFleet();

  // Adds `count` workers: all connect before the first greets. Errors are those that connect(2) returned, with errno.
  absl::Status join(int count);
  // Kills one worker when its next version is sealed: its socket and lease pipe close without a message.
  void kill_when_sealed() { kill_when_sealed_ = true; }

  // Runs until the deadline, or until `done`, called whenever no event is ready, returns true.
  void run_until(const std::function<bool()>& done, Deadline deadline);
  boost::asio::io_context& io() { return io_; }  // for events that should wake run_until()

  int welcomed() const;                            // how many are connected, and may read slots
  int serving(Version at_least = 1) const;         // how many are connected, and serve such a version
  int lost() const { return lost_; }               // how many the sender refused, evicted or disconnected
  const std::string& why() const { return why_; }  // why the last one was lost

 private:
  struct Worker;

  void on_message(const std::shared_ptr<Worker>& worker, const Message& message, std::vector<UniqueFd> descriptors);
  static void flip(Worker& worker, Version version);  // if it was prepared, it serves it now, and says so
  void drop(const Worker& worker);
  void beat();

  boost::asio::io_context io_;
  boost::asio::steady_timer heartbeat_;
  const Endpoint endpoint_;
  const SharedSpecs expected_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::uint64_t next_ = 1;
  bool kill_when_sealed_ = false;
  int lost_ = 0;
  std::string why_;
};

}  // namespace bascule::bench
