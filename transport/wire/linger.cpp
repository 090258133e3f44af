#include <bascule/transport/wire/linger.h>

#include <sys/socket.h>

#include <boost/asio/steady_timer.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include <bascule/transport/caught.h>
#include <bascule/transport/descriptor_limit.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {
namespace {

using Error = boost::system::error_code;
using Socket = boost::asio::generic::stream_protocol::socket;
constexpr std::size_t kReadBytes = 16u << 10;
int most_lingering() { return static_cast<int>(share_of_descriptors(kMostLingering, 8)); }
constexpr int kLingerReads = 16;  // then other work on this io_context runs

// Its pending operations keep it alive.
class Lingering : public std::enable_shared_from_this<Lingering> {
 public:
  explicit Lingering(Socket socket) : socket_(std::move(socket)), end_(socket_.get_executor()) { ++count; }
  Lingering(const Lingering&) = delete;
  Lingering& operator=(const Lingering&) = delete;
  ~Lingering() {
    close_kept(socket_);
    --count;
  }

  static inline std::atomic<int> count = 0;

  void start() {
    ::shutdown(socket_.native_handle(), SHUT_WR);
    if (count > most_lingering()) return;
    end_.expires_after(kLinger);
    end_.async_wait([self = shared_from_this()](const Error&) { close_kept(self->socket_); });
    wait();
  }

 private:
  void wait() {
    socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const Error& error) {
      if (!self->socket_.is_open()) return;
      error || self->drain() ? void(self->end_.cancel()) : self->wait();
    });
  }
  // Returns true once there is nothing left to wait for.
  bool drain() {
    std::array<std::uint8_t, kReadBytes> bytes;
    std::vector<UniqueFd> descriptors;  // closed with it
    for (int i = 0; i < kLingerReads; ++i) {
      const Transferred read = receive_some(socket_.native_handle(), bytes, descriptors);
      if (read.error == EAGAIN) return false;
      drained_ += read.bytes;
      if (read.error != 0 || read.bytes == 0 || drained_ > kMaxFrameBytes) return true;
    }
    return false;
  }

  Socket socket_;
  boost::asio::steady_timer end_;
  std::size_t drained_ = 0;
};

}  // namespace

void close_kept(Socket& socket) {
  if (!socket.is_open()) return;
  boost::system::error_code ignored;
  ForkGuard guard;
  guard.give_up(socket.native_handle());
  socket.close(ignored);
}

void close_lingering(Socket socket) {
  const absl::Status lingers = caught([&] { std::make_shared<Lingering>(std::move(socket))->start(); });
  if (!lingers.ok()) close_kept(socket);  // it was not moved, or is closed already
}

}  // namespace bascule::inline v0
