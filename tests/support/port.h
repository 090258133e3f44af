// A TCP port of 127.0.0.1 for one test. This object binds the port but never listens on it. So the system gives the
// port to no other process, but a process that names it and sets SO_REUSEADDR, as a sender does, may listen on it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <stdexcept>

#include <bascule/transport/posix/unique_fd.h>

namespace bascule::test {

class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        ::bind(socket_.get(), generic, size) != 0 || ::getsockname(socket_.get(), generic, &size) != 0)
      throw std::runtime_error("cannot reserve a TCP port of 127.0.0.1");
    number_ = ntohs(address.sin_port);
  }

  std::uint16_t number() const { return number_; }

 private:
  UniqueFd socket_;
  std::uint16_t number_ = 0;
};

}  // namespace bascule::test
