#include "support/processes/line_end.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

#include <bascule/transport/status.h>

namespace bascule::test {

std::pair<UniqueFd, UniqueFd> LineEnd::make_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error("cannot make a pair of sockets");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

absl::StatusOr<std::string> LineEnd::read(Deadline deadline) {
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const auto left = absl::ToInt64Milliseconds(absl::Ceil(deadline.left(), absl::Milliseconds(1)));
    pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int polled = ::poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (polled < 0 && errno == EINTR) continue;
    if (polled < 0) return errno_status(errno, "wait for a line");
    if (polled == 0) {
      if (deadline.passed()) return deadline_exceeded("no line came");
      continue;
    }
    std::array<char, 4096> piece{};
    const ssize_t size = ::read(socket_.get(), piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size == 0 || (size < 0 && errno == ECONNRESET)) return absl::OutOfRangeError("the other end is gone");
    if (size < 0) return errno_status(errno, "read a line");
    buffer_.append(piece.data(), static_cast<std::size_t>(size));
  }
}

void LineEnd::write(std::string_view line) {
  const std::string text = cat(line, "\n");
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t size = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    left.remove_prefix(static_cast<std::size_t>(size));
  }
}

}  // namespace bascule::test
