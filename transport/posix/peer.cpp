#include "transport/posix/peer.h"

#include <sys/socket.h>

#include <cerrno>

#include "transport/text.h"

namespace bascule {

absl::Status check_peer(int socket, uid_t expected) {
  struct ucred peer {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return errno_status(errno, "ask who is at the other end of the control socket");
  if (peer.uid != expected)
    return absl::PermissionDeniedError(cat("the process at the other end (pid ", peer.pid, ") runs as uid ", peer.uid,
                                           ", expected ", expected, "; run both ends as one user"));
  return absl::OkStatus();
}

}  // namespace bascule
