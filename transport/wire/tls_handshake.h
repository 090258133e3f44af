// TlsHandshake: shakes hands over a socket, then makes the channel of it. There is no channel before: nothing that a
// peer says is parsed as a message until it has proved that it knows the key.
//
// It sets no deadline: its owner closes it after one.
//
// Threads: everything on the io_context's one thread. The handler is called from it, never from inside start() or
// close().
#pragma once

#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/wire/channel.h>
#include <bascule/transport/wire/tls.h>

namespace bascule::inline v0 {

class TlsHandshake : public std::enable_shared_from_this<TlsHandshake> {
 public:
  // Once. The channel is to be started at once: what came behind the handshake waits in it.
  using OnDone = std::function<void(absl::StatusOr<std::shared_ptr<Channel>>)>;

  // Made by std::make_shared. Dropping the last reference closes it. A child that is forked has not the connection.
  TlsHandshake(Channel::Socket socket, TlsSession session);
  ~TlsHandshake() { close(); }

  // UNAUTHENTICATED: the peer does not know the key, or its handshake does not end. UNAVAILABLE: it hung up. One
  // attempt: the socket is closed then.
  void start(OnDone done);
  void close();  // `done` is not called any more

 private:
  void step();
  void wait_for(Channel::Socket::wait_type what);
  void finish(absl::StatusOr<std::shared_ptr<Channel>> result);

  Channel::Socket socket_;
  TlsSession session_;
  std::size_t fed_ = 0;  // bytes of the peer's
  OnDone done_;
};

}  // namespace bascule::inline v0
