// A sender whose messages all come from the test.
#pragma once

#include "support/wire_end.h"  // first: see there

#include <boost/asio/local/stream_protocol.hpp>

#include <filesystem>
#include <optional>

namespace bascule::test {

class WireSender : public WireEnd {
 public:
  explicit WireSender(const std::filesystem::path& folder)
      : acceptor_(io_, Protocol::endpoint((folder / "control.sock").string())) {}

  // Hangs up, and waits for the next worker's hello; the test fails if none comes for long.
  Hello greeted(bool hangs_up = true) {
    if (hangs_up) hang_up();
    std::optional<Protocol::socket> socket;
    acceptor_.async_accept([&](const boost::system::error_code& error, Protocol::socket accepted) {
      if (!error) socket = std::move(accepted);
    });
    io_.restart();
    for (const Deadline deadline(patience()); !socket && !deadline.passed();) io_.run_one_until(deadline.at());
    if (!socket) acceptor_.cancel();
    EXPECT_TRUE(socket) << "no worker came";
    if (!socket) return {};
    speak(*std::move(socket));
    return expect<Hello>();
  }

 private:
  using Protocol = boost::asio::local::stream_protocol;
  Protocol::acceptor acceptor_;
};

}  // namespace bascule::test
