#include <bascule/transport/posix/peer.h>

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status check_peer(int socket, uid_t expected) {
  struct ucred peer {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return errno_status(errno, "ask for the user at the other end of the control socket");
  if (peer.uid != expected)
    return absl::PermissionDeniedError(cat("the process at the other end (pid ", peer.pid, ") runs as uid ", peer.uid,
                                           ", expected ", expected, "; run both ends as one user"));
  return absl::OkStatus();
}

pid_t pid_of_peer(int socket) {
  struct ucred peer {};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

std::string address_of_peer(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getpeername(socket, generic, &size) != 0 || ::getnameinfo(generic, size, host.data(), host.size(), port.data(),
                                                                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "somewhere";
  return address.ss_family == AF_INET6 ? cat("[", host.data(), "]:", port.data()) : cat(host.data(), ":", port.data());
}

}  // namespace bascule::inline v0
