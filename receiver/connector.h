// Connector: connects to a sender, and hands the connection over once its peer is trusted. On a Unix socket the peer
// must run as our user; over TCP both ends must have proved that they know the token (transport/wire/tls.h).
//
// Threads: the io_context's one thread. Only one connection is under way at a time.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/receiver/handler_scope.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/wire/channel.h>
#include <bascule/transport/wire/tls_handshake.h>

namespace bascule::inline v0 {

class Connector {
 public:
  // The handler must call the channel's start() before it returns.
  using OnDone = std::function<void(absl::StatusOr<std::shared_ptr<Channel>>)>;

  // `token` is needed for TCP, and given only for TCP (Token::find). `scope` must be closed before this object is
  // destroyed, if other threads run the io_context.
  Connector(boost::asio::io_context& io, HandlerScope scope, const Endpoint& endpoint, std::optional<Token> token);

  // Tries once, for at most the endpoint's suspect_after, then calls `done`; after an early failure, from within this
  // call. `done` gets UNAVAILABLE if no sender answered in time; only after this error may versions that the folder
  // keeps be served. It gets PERMISSION_DENIED if the folder or socket is another user's, UNAUTHENTICATED if the tokens
  // or schemes differ, and INTERNAL if OpenSSL cannot do TLS.
  void connect(OnDone done);
  void cancel();  // `done` is no longer called

 private:
  void connect_folder();
  void connect_host();
  // Tries each address, starting with the one at `next`.
  void connect_to(const boost::asio::ip::tcp::resolver::results_type& addresses, std::size_t next);
  void shake_hands();
  void finish(absl::StatusOr<std::shared_ptr<Channel>> result);

  const HandlerScope scope_;
  const Endpoint& endpoint_;
  const std::optional<Token> token_;
  OnDone done_;
  bool found_ = false;         // the folder existed
  std::uint64_t attempt_ = 0;  // handlers of older attempts do nothing
  boost::asio::local::stream_protocol::socket local_;
  boost::asio::ip::tcp::socket tcp_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer deadline_;
  std::optional<TlsContext> tls_;  // made at the first connection
  std::shared_ptr<TlsHandshake> handshake_;
  const std::shared_ptr<Decoder> decoder_ = std::make_shared<Decoder>();  // of long welcomes
};

}  // namespace bascule::inline v0
