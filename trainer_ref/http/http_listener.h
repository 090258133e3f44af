// Where an HTTP server listens: an address of this machine, given by a flag.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::ref {

struct HttpAddress {
  std::string host;        // an IP address, without brackets, or "localhost"
  std::uint16_t port = 0;  // 0: the system chooses
};

// Parses "127.0.0.1:8000" or "[::1]:8000". INVALID_ARGUMENT names `flag` ("listen").
absl::StatusOr<HttpAddress> parse_http_address(std::string_view flag, std::string_view text);

// Binds and listens; no program that this one starts inherits the socket. Returns INVALID_ARGUMENT if there is no such
// address, UNAVAILABLE if it cannot be bound. Both name `flag`.
absl::StatusOr<boost::asio::ip::tcp::acceptor> listen_at(boost::asio::io_context& io, std::string_view flag,
                                                         const HttpAddress& address);

// Accepts connections. Keeps a descriptor in reserve: when the process has no other left, it serves to answer 503, so
// that clients learn why they are not served.
//
// Threads: the acceptor's executor.
class HttpAcceptor {
 public:
  // `server` is the program's name in answers.
  HttpAcceptor(boost::asio::ip::tcp::acceptor acceptor, std::string server);

  enum class Accepted {
    kYes,
    kTurnedAway,  // the process is out of descriptors, and the client was told
    kNo,          // try again later, unless the acceptor was closed
  };
  // Accepts the next connection into `socket`, which no program that this one starts inherits.
  boost::asio::awaitable<Accepted> accept(boost::asio::ip::tcp::socket& socket);

  std::string url() const;  // "http://127.0.0.1:8000", with the port that was chosen
  bool is_open() const { return acceptor_.is_open(); }
  void close();

 private:
  boost::asio::ip::tcp::acceptor acceptor_;
  const std::string server_;
  UniqueFd reserve_;
};

}  // namespace bascule::ref
