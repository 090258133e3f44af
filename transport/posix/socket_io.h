// One recvmsg and one sendmsg, with descriptors. Neither blocks or raises SIGPIPE.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

inline constexpr std::size_t kMaxDescriptors = 64;  // per message

struct Transferred {
  std::size_t bytes = 0;
  int error = 0;                  // errno; EAGAIN if the socket is not ready
  bool descriptors_lost = false;  // more came than kMaxDescriptors, or than this process may open
};

// Reads the available bytes, at most bytes.size(). 0 bytes without an error mean that the peer hung up. Appends the
// descriptors that came along, which are closed on exec.
Transferred receive_some(int socket, std::span<std::uint8_t> bytes, std::vector<UniqueFd>& descriptors);

// Writes as many bytes as the socket takes. The descriptors go with the first byte: if the result's `bytes` is above 0,
// they are sent.
Transferred send_some(int socket, std::span<const iovec> pieces, std::span<const int> descriptors);

}  // namespace bascule::inline v0
