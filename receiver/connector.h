// Connector: makes the connection to a sender, and hands it over once its peer may be spoken to: on a Unix socket it
// runs as our user, over TCP both ends have proved that they know the token (transport/wire/tls.h).
//
// Threads: the io_context's one thread. Only one connection is under way at a time.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>
#include <bascule/transport/wire/channel.h>
#include <bascule/transport/wire/tls_handshake.h>

namespace bascule::inline v0 {

class Connector {
 public:
  // The channel is to be given handlers at once.
  using OnDone = std::function<void(absl::StatusOr<std::shared_ptr<Channel>>)>;

  // `token`: for TCP, and only for that (Token::find).
  Connector(boost::asio::io_context& io, const Endpoint& endpoint, std::optional<Token> token);

  // Tries once, and calls `done`, from inside this call where it fails early; gives up after the endpoint's
  // suspect_after. UNAVAILABLE, and nothing else: nobody is there, or not in time; what the folder keeps may be served
  // then. PERMISSION_DENIED: somebody else's folder or socket. UNAUTHENTICATED: the tokens differ, or the schemes.
  // INTERNAL: OpenSSL cannot do TLS.
  void connect(OnDone done);
  void cancel();  // `done` is not called any more

 private:
  void connect_folder();
  void connect_host();
  void connect_to(const boost::asio::ip::tcp::resolver::results_type& addresses);
  void shake_hands();
  void finish(absl::StatusOr<std::shared_ptr<Channel>> result);

  const Endpoint& endpoint_;
  const std::optional<Token> token_;
  OnDone done_;
  bool found_ = false;         // the folder was there
  std::uint64_t attempt_ = 0;  // handlers of an older one do nothing
  boost::asio::local::stream_protocol::socket local_;
  boost::asio::ip::tcp::socket tcp_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer deadline_;
  std::optional<TlsContext> tls_;  // from the first connection on
  std::shared_ptr<TlsHandshake> handshake_;
};

}  // namespace bascule::inline v0
