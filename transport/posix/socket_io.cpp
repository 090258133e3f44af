#include <bascule/transport/posix/socket_io.h>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace bascule::inline v0 {
namespace {

struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(sizeof(int) * kMaxDescriptors)] = {};
};

void take_descriptors(msghdr& message, std::vector<UniqueFd>& descriptors) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::array<UniqueFd, kMaxDescriptors> came;  // they are ours, even if there is no memory for the list
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      came.at(i) = UniqueFd(fd);
    }
    for (std::size_t i = 0; i < count; ++i) descriptors.push_back(std::move(came.at(i)));
  }
}

}  // namespace

Transferred receive_some(int socket, std::span<std::uint8_t> bytes, std::vector<UniqueFd>& descriptors) {
  Control control;
  iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return {.error = errno};
  take_descriptors(message, descriptors);
  return {.bytes = static_cast<std::size_t>(count), .descriptors_lost = (message.msg_flags & MSG_CTRUNC) != 0};
}

Transferred send_some(int socket, std::span<const iovec> pieces, std::span<const int> descriptors) {
  Control control;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // sendmsg only reads it
  message.msg_iovlen = pieces.size();
  if (descriptors.size() > kMaxDescriptors) return {.error = EINVAL};
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t count = 0;
  do {
    count = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return {.error = errno};
  return {.bytes = static_cast<std::size_t>(count)};
}

}  // namespace bascule::inline v0
