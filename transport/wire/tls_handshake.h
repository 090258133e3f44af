// TlsHandshake: shakes hands over a socket, then makes its channel, so that a peer's bytes are parsed as messages only
// after it has proved that it knows the key.
//
// It has no deadline: its owner must close it after one.
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
  // Called once. Start the channel at once: it holds bytes that came after the handshake.
  using OnDone = std::function<void(absl::StatusOr<std::shared_ptr<Channel>>)>;

  // Made by std::make_shared. Dropping the last reference closes it. A forked child does not have the connection.
  TlsHandshake(Channel::Socket socket, TlsSession session);
  ~TlsHandshake() { close(); }

  // UNAUTHENTICATED: the peer does not know the key, or its handshake does not end. UNAVAILABLE: it hung up. There is
  // one attempt: a failure closes the socket.
  void start(OnDone done);
  void close();  // `done` is not called afterwards

 private:
  void step();
  void wait_for(Channel::Socket::wait_type what);
  void finish(absl::StatusOr<std::shared_ptr<Channel>> result);

  Channel::Socket socket_;
  TlsSession session_;
  std::size_t fed_ = 0;  // bytes from the peer
  OnDone done_;
};

}  // namespace bascule::inline v0
