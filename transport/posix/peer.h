// Finds out who is at the other end of a socket: the user, or the address.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// Returns PERMISSION_DENIED unless the process at the other end of the Unix socket `socket` runs as the user
// `expected`; the text names both users.
absl::Status check_peer(int socket, uid_t expected);

// Returns the pid of the process at the other end of the Unix socket `socket`; 0 if it has none here, as in another pid
// namespace.
pid_t pid_of_peer(int socket);

// Returns the address at the other end of a TCP socket, such as "10.0.0.7:41234", for texts.
std::string address_of_peer(int socket);

}  // namespace bascule::inline v0
