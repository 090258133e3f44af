// TlsHandshake: shakes hands over a socket, and only then makes the socket's channel. So a peer's bytes are parsed as
// messages only after the peer has proved that it knows the key.
//
// The handshake has no deadline, so its owner must close it when one has passed.
//
// Threads: everything on the io_context's one thread. The handler is called on that thread too, but never from inside
// start() or close().
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
  // Called once. Start the channel at once, since it may hold bytes that came after the handshake.
  using OnDone = std::function<void(absl::StatusOr<std::shared_ptr<Channel>>)>;

  // Make it with std::make_shared. Dropping the last reference closes the socket. A forked child does not have the
  // connection.
  TlsHandshake(Channel::Socket socket, TlsSession session);
  ~TlsHandshake() { close(); }

  // Begins the handshake. `done` gets UNAUTHENTICATED if the peer does not know the key, or its handshake does not end,
  // and UNAVAILABLE if the peer hung up. There is one attempt: a failure closes the socket.
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
