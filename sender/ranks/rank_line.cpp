#include <bascule/sender/ranks/rank_line.h>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr absl::Duration kLook = absl::Milliseconds(50);  // how often `interrupted` is asked

// Rounded up, so that a wait does not end just before its deadline.
int milliseconds_until(Deadline deadline, absl::Duration most) {
  const absl::Duration left = std::clamp(deadline.left(), absl::ZeroDuration(), most);
  return static_cast<int>(absl::ToInt64Milliseconds(left + absl::Milliseconds(1)));
}

absl::Status gone() { return unavailable("its connection ended"); }

absl::Status wait_for(int socket, short events, Deadline deadline) {
  pollfd waited{.fd = socket, .events = events, .revents = 0};
  while (true) {
    const int ready = ::poll(&waited, 1, milliseconds_until(deadline, absl::Minutes(1)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return errno_status(errno, "wait for another rank");
    if (deadline.passed()) return deadline_exceeded("its message did not come whole, or it does not read");
  }
}

}  // namespace

absl::StatusOr<std::pair<ProcessFd, ProcessFd>> RankLine::make_ends() {
  std::array<int, 2> ends{-1, -1};
  ProcessFd first = ProcessFd::make([&] {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) ends = {-1, -1};
    return ends[0];
  });
  if (!first) return errno_status(errno, "make a socket for another rank");
  return std::pair(std::move(first), ProcessFd(UniqueFd(ends[1])));
}

absl::Status RankLine::write(std::string_view bytes, Deadline deadline, std::span<const int> descriptors) {
  if (bytes.size() > kMaxFrameBytes)
    return invalid_argument("a message of ", bytes.size(), " bytes to another rank; at most ", kMaxFrameBytes,
                            " are sent; give fewer tensors or shards (join small ones)");
  const auto length = static_cast<std::uint32_t>(bytes.size());
  const std::size_t whole = sizeof(length) + bytes.size();
  std::array<std::byte, sizeof(length)> header{};
  std::memcpy(header.data(), &length, sizeof(length));
  for (std::size_t sent = 0; sent < whole;) {
    std::array<iovec, 2> pieces{};
    std::size_t count = 0;
    if (sent < header.size()) pieces[count++] = {header.data() + sent, header.size() - sent};
    const std::size_t skipped = sent < header.size() ? 0 : sent - header.size();
    if (skipped < bytes.size()) pieces[count++] = {const_cast<char*>(bytes.data()) + skipped, bytes.size() - skipped};
    const Transferred written =
        send_some(socket_.get(), std::span(pieces).first(count), sent == 0 ? descriptors : std::span<const int>());
    sent += written.bytes;
    if (written.error == EAGAIN) {
      BASCULE_TRY(wait_for(socket_.get(), POLLOUT, deadline));
    } else if (written.error == EPIPE || written.error == ECONNRESET) {
      return gone();
    } else if (written.error != 0) {
      return errno_status(written.error, "write to another rank");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RankLine::Frame> RankLine::read(Deadline deadline) {
  Frame frame;
  const auto fill = [&](std::span<std::uint8_t> to) -> absl::Status {
    while (!to.empty()) {
      const Transferred came = receive_some(socket_.get(), to, frame.descriptors);
      if (came.descriptors_lost)
        return absl::ResourceExhaustedError("this process has no descriptor left; raise its limit (ulimit -n)");
      if (came.error == EAGAIN) {
        BASCULE_TRY(wait_for(socket_.get(), POLLIN, deadline));
      } else if (came.error == ECONNRESET || (came.error == 0 && came.bytes == 0)) {
        return gone();
      } else if (came.error != 0) {
        return errno_status(came.error, "read from another rank");
      }
      to = to.subspan(came.bytes);
    }
    return absl::OkStatus();
  };
  std::array<std::uint8_t, 4> header{};
  BASCULE_TRY(fill(header));
  const auto length = std::bit_cast<std::uint32_t>(header);
  if (length > kMaxFrameBytes) return invalid_argument("a message of ", length, " bytes; at most ", kMaxFrameBytes);
  frame.bytes.resize(length);
  BASCULE_TRY(fill({reinterpret_cast<std::uint8_t*>(frame.bytes.data()), frame.bytes.size()}));
  return frame;
}

bool RankLine::other_end_is_gone() const {
  pollfd looked{.fd = socket_.get(), .events = 0, .revents = 0};  // poll() reports the end unasked
  return ::poll(&looked, 1, 0) > 0;
}

absl::StatusOr<std::vector<std::size_t>> wait_readable(std::span<RankLine* const> lines, Deadline deadline,
                                                       const std::function<bool()>& interrupted) {
  std::vector<pollfd> waited;  // poll() ignores a negative descriptor
  for (const RankLine* line : lines) waited.push_back({line ? line->descriptor() : -1, POLLIN, 0});
  while (true) {
    const int ready = ::poll(waited.data(), waited.size(), milliseconds_until(deadline, kLook));
    if (ready < 0 && errno != EINTR) return errno_status(errno, "wait for other ranks");
    std::vector<std::size_t> readable;
    for (std::size_t i = 0; ready > 0 && i < waited.size(); ++i)
      if (waited[i].revents != 0) readable.push_back(i);
    if (!readable.empty()) return readable;
    if (interrupted && interrupted()) return absl::CancelledError("interrupted while other ranks were awaited");
    if (deadline.passed()) return deadline_exceeded("no message came in time");
  }
}

}  // namespace bascule::inline v0
