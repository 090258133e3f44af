// The process and the user at the other end of a socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// PERMISSION_DENIED unless the process at the other end of the Unix socket `socket` runs as `expected`; the text names
// both.
absl::Status check_peer(int socket, uid_t expected);

// The address at the other end of a TCP socket, as "10.0.0.7:41234", for texts.
std::string address_of_peer(int socket);

}  // namespace bascule::inline v0
