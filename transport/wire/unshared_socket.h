// Sockets that no started program inherits, from the moment that they exist. Asio opens a socket first, and it could be
// marked only then: a program that another thread started in between would keep the socket for its whole life.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

#include <boost/system/error_code.hpp>

#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// Like socket.open(protocol, error).
void open_unshared(auto& socket, const auto& protocol, boost::system::error_code& error) {
  UniqueFd made(::socket(protocol.family(), protocol.type() | SOCK_CLOEXEC, protocol.protocol()));
  error = made ? boost::system::error_code() : boost::system::error_code(errno, boost::system::system_category());
  if (made) socket.assign(protocol, made.get(), error);
  if (made && !error) made.release();
}

// Accepts a connection of `acceptor`, which must be non-blocking, into `socket`.
void accept_unshared(auto& acceptor, const auto& protocol, auto& socket, boost::system::error_code& error) {
  UniqueFd made(::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
  error = made ? boost::system::error_code() : boost::system::error_code(errno, boost::system::system_category());
  if (made) socket.assign(protocol, made.get(), error);
  if (made && !error) made.release();
}

}  // namespace bascule::inline v0
