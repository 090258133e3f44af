#include <bascule/transport/wire/tls_handshake.h>

#include <cstring>

#include <boost/asio/post.hpp>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/linger.h>
#include <bascule/transport/wire/tls_io.h>

namespace bascule::inline v0 {
namespace {

// Our handshakes take some 1,000 bytes. OpenSSL accepts a first message of 128 KiB, even in records of one byte: 10 ms
// of this thread for each peer, even an unknown one.
constexpr std::size_t kMostHandshakeBytes = 16u << 10;

}  // namespace

TlsHandshake::TlsHandshake(Channel::Socket socket, TlsSession session)
    : socket_(std::move(socket)), session_(std::move(session)) {
  keep_to_this_process(socket_);
}

void TlsHandshake::start(OnDone done) {
  done_ = std::move(done);
  boost::asio::post(socket_.get_executor(), [weak = weak_from_this()] {
    if (const std::shared_ptr<TlsHandshake> self = weak.lock(); self && self->socket_.is_open()) self->step();
  });
}

void TlsHandshake::close() {
  done_ = nullptr;
  close_kept(socket_);
}

void TlsHandshake::wait_for(Channel::Socket::wait_type what) {
  socket_.async_wait(what, [weak = weak_from_this()](const boost::system::error_code& error) {
    const std::shared_ptr<TlsHandshake> self = weak.lock();
    if (!self || !self->socket_.is_open() || error == boost::asio::error::operation_aborted) return;
    if (error) return self->finish(unavailable("waiting for the peer: ", error.message()));
    self->step();
  });
}

// Continues as far as the socket allows now.
void TlsHandshake::step() {
  for (;;) {
    const absl::StatusOr<bool> open = session_.shake_hands();
    const int flushed = flush(socket_.native_handle(), session_);
    if (!open.ok()) return finish(open.status());  // the peer has got a TLS alert
    if (*open) return finish(std::make_shared<Channel>(std::move(socket_), std::move(session_)));
    if (fed_ >= kMostHandshakeBytes)
      return finish(absl::UnauthenticatedError(
          cat(kNotAuthenticated, " (TLS: its handshake goes on after ", kMostHandshakeBytes, " bytes)")));
    if (flushed == EAGAIN) return wait_for(Channel::Socket::wait_write);
    if (flushed != 0) return finish(unavailable("TLS handshake: ", std::strerror(flushed)));
    const Transferred came = feed_some(socket_.native_handle(), session_);
    if (came.error == EAGAIN) return wait_for(Channel::Socket::wait_read);
    if (came.error == kTlsFailed) return finish(session_.failure());
    if (came.error != 0) return finish(unavailable("TLS handshake: ", std::strerror(came.error)));
    if (came.bytes == 0) return finish(unavailable("the peer hung up during the TLS handshake"));
    fed_ += came.bytes;
  }
}

void TlsHandshake::finish(absl::StatusOr<std::shared_ptr<Channel>> result) {
  const OnDone done = std::move(done_);
  close();
  done(std::move(result));
}

}  // namespace bascule::inline v0
