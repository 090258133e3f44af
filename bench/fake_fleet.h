// FakeFleet: many workers in one process that speak the real protocol over real sockets, and read nothing: what a
// sender does for a thousand workers can be measured, and tested, on one machine.
//
// Each worker is a connection: it greets, answers prepare, sealed and decided as a receiver does, releases the slot of
// the version before, keeps its lease pipe and says that it lives. Unlike a receiver it never comes back by itself.
//
// Threads: all calls, and everything that the fleet does, on the thread that calls run_until().
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
  // `expected`: what every worker greets with; empty: it takes anything.
  FakeFleet(Endpoint endpoint, std::vector<TensorSpec> expected);
  ~FakeFleet();

  // `count` more workers: all connect, and only then the first of them greets. An error of connect(2), with its number.
  absl::Status join(int count);
  // One of them dies when it hears that its next version is sealed: socket and lease pipe close without a word.
  void kill_when_sealed() { kill_when_sealed_ = true; }

  // Serves until `done`, which is asked whenever there is nothing more to hear at once, or the deadline.
  void run_until(const std::function<bool()>& done, Deadline deadline);
  boost::asio::io_context& io() { return io_; }  // for what is to wake it

  int welcomed() const;                            // that are there, and may read slots
  int serving(Version at_least = 1) const;         // that are there, and serve such a version
  int lost() const { return lost_; }               // that the sender refused, evicted or hung up on
  const std::string& why() const { return why_; }  // the last one was lost

 private:
  struct Worker;

  void hear(const std::shared_ptr<Worker>& worker, const Message& message, std::vector<UniqueFd> descriptors);
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
