// Where an HTTP server listens: an address of this machine, given by a flag.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/status/statusor.h"

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

// Accepts the next connection into `socket`, which no program that this one starts inherits either.
boost::asio::awaitable<void> accept_at(boost::asio::ip::tcp::acceptor& acceptor, boost::asio::ip::tcp::socket& socket,
                                       boost::system::error_code& error);

// "http://127.0.0.1:8000", with the port that was chosen.
std::string url_of(const boost::asio::ip::tcp::acceptor& acceptor);

}  // namespace bascule::ref
