// A worker whose messages all come from the test.
#pragma once

#include "support/wire_end.h"  // first: see there

#include <unistd.h>

#include <boost/asio/local/stream_protocol.hpp>

#include <filesystem>
#include <string>

namespace bascule::test {

class WireWorker : public WireEnd {
 public:
  explicit WireWorker(const std::filesystem::path& folder) {
    boost::asio::local::stream_protocol::socket socket(io_);
    socket.connect(boost::asio::local::stream_protocol::endpoint((folder / "control.sock").string()));
    speak(std::move(socket));
  }

  // A hello with only the fields that every worker sets.
  static Hello hello(std::string name, std::uint64_t instance) {
    Hello hello;
    hello.worker = std::move(name);
    hello.instance = instance;
    hello.pid = ::getpid();
    return hello;
  }
  // Joins a sender that has published, and serves its newest version.
  Prepare serve(const Hello& hello) {
    say(hello);
    expect<Welcome>();
    return take();
  }
  Prepare serve(std::string name, std::uint64_t instance) { return serve(hello(std::move(name), instance)); }
  void release(const Prepare& served) { say(Released{.slot = served.slot, .lease = served.lease}); }
  // Takes the next version, from its prepare to the ack.
  Prepare take() {
    Prepare prepare = prepare_next();
    if (!decided_) expect<Decided>();
    say(Ack{.version = prepare.version});
    return prepare;
  }
  // The same for workers that are sent a version together.
  static Prepare take_all(std::initializer_list<WireWorker*> workers) {
    Prepare prepare;
    for (WireWorker* worker : workers) {
      prepare = worker->expect<Prepare>();
      worker->say(Ready{.version = prepare.version});
    }
    for (WireWorker* worker : workers) {
      worker->expect<Sealed>();
      worker->say(Prepared{.version = prepare.version});
    }
    for (WireWorker* worker : workers) {
      worker->expect<Decided>();
      worker->say(Ack{.version = prepare.version});
    }
    return prepare;
  }
  // Like take(), up to `prepared`.
  Prepare prepare_next() {
    Prepare prepare = expect<Prepare>();
    say(Ready{.version = prepare.version});
    decided_ = expect<Sealed>().decided.value_or(false);
    say(Prepared{.version = prepare.version});
    return prepare;
  }

 private:
  bool decided_ = false;  // the version that was prepared last: its decision came with the seal
};

}  // namespace bascule::test
