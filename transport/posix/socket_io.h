// One recvmsg and one sendmsg, with descriptors. Neither blocks; neither raises SIGPIPE.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

inline constexpr std::size_t kMaxDescriptors = 16;  // per message

struct Transferred {
  std::size_t bytes = 0;
  int error = 0;                  // errno; EAGAIN: not now
  bool descriptors_lost = false;  // more than kMaxDescriptors came, or than this process may open
};

// Reads the available bytes, at most bytes.size(); 0 bytes without an error: the peer hung up. Appends the descriptors
// that came along, closed on exec.
Transferred receive_some(int socket, std::span<std::uint8_t> bytes, std::vector<UniqueFd>& descriptors);

// Writes what the socket takes. The descriptors go with the first byte, so they are sent once bytes > 0.
Transferred send_some(int socket, std::span<const iovec> pieces, std::span<const int> descriptors);

}  // namespace bascule::inline v0
