// Who is at the other end of a Unix socket.
#pragma once

#include <sys/types.h>

#include "absl/status/status.h"

namespace bascule {

// PERMISSION_DENIED unless the process at the other end of `socket` runs as `expected`; the text names both.
absl::Status check_peer(int socket, uid_t expected);

}  // namespace bascule
