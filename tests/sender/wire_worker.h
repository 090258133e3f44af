// A worker whose every message is the test's.
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

  // Joins a sender that has published, and serves its newest version. Nothing that it says is true but the words.
  void serve(std::string name, std::uint64_t instance) {
    Hello hello;
    hello.worker = std::move(name);
    hello.instance = instance;
    hello.pid = ::getpid();
    say(hello);
    expect<Welcome>();
    const Version version = expect<Prepare>().version;
    say(Ready{.version = version});
    expect<Sealed>();
    say(Prepared{.version = version});
    expect<Commit>();
    say(Ack{.version = version});
  }
};

}  // namespace bascule::test
