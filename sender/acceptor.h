// Acceptor: listens at the endpoint, and hands over each connection with its first message, once the peer is trusted.
// On a Unix socket a peer is trusted if it runs as our user; over TCP, once it has proved that it knows the token
// (transport/wire/tls.h).
//
//   accepted ──uid is ours / TLS──▶ trusted ──hello──▶ handed over
//       │                              └──status_query, rank_hello──▶ answered, until it hangs up
//       └──── suspect_after, another message, too many ────▶ refused
//
// A peer that is not trusted yet is refused without a message: its TLS handshake fails, or the connection is closed.
//
// Threads: the io_context's one thread, except for bind().
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/endpoint_watch.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/wire/channel.h>
#include <bascule/transport/wire/tls_handshake.h>

namespace bascule::inline v0 {

// The most connections that may be open without a hello: enough for a large fleet that joins at once, but at most a
// quarter of this process's descriptors, so that peers without the token cannot use up the trainer's descriptors.
inline constexpr std::size_t kMaxNewcomers = 1024;

class Acceptor {
 public:
  // The handler must call the channel's start() before it returns.
  using OnArrival = std::function<void(std::shared_ptr<Channel>, Hello)>;
  using OnStatusQuery = std::function<void(Channel&)>;  // must send a SenderStatus
  // Returns the answer's descriptor: one end of a socket. An error refuses the rank.
  using OnRank = std::function<absl::StatusOr<ProcessFd>(const RankHello&)>;
  using OnRefused = std::function<void(const absl::Status&)>;  // the reason, for a person

  // `folder` is a descriptor of the endpoint's folder, borrowed; over TCP it is not used. `token` is needed for TCP,
  // and given only for TCP (Token::find).
  Acceptor(boost::asio::io_context& io, const Endpoint& endpoint, int folder, std::optional<Token> token, Epoch epoch,
           OnArrival on_arrival, OnStatusQuery on_status_query, OnRank on_rank, OnRefused on_refused);
  ~Acceptor();  // removes the socket's file, if it is still the one that this acceptor made

  // Blocks while a host's name is looked up. Returns ALREADY_EXISTS if another process listens there, INTERNAL if
  // OpenSSL cannot do TLS, and FAILED_PRECONDITION if another kind of file has the socket's name; it is left alone.
  absl::Status bind();
  void start();
  void close();  // no handler is called any longer

 private:
  using Protocol = boost::asio::generic::stream_protocol;
  using Listener = boost::asio::basic_socket_acceptor<Protocol>;
  struct Newcomer {
    std::shared_ptr<TlsHandshake> handshake;  // over TCP, until the peer is trusted
    std::shared_ptr<Channel> channel;         // set once the peer is trusted
    bool answered = false;                    // its status query was answered; it stays until the peer hangs up
    std::string from;                         // for texts
    boost::asio::steady_timer deadline;
  };

  absl::Status bind_folder();
  absl::Status bind_host();
  absl::Status remove_dead_socket();
  absl::Status listen_at(const Protocol::endpoint& address);
  void stop_listening();
  void accept_next();
  absl::Status accept(boost::system::error_code error);  // if there is a connection; an error: try again later
  void pause(const absl::Status& why);
  void receive(Protocol::socket socket);
  void make_room();
  void shake_hands(std::uint64_t number, Protocol::socket socket);
  bool has_come(std::uint64_t number);  // its hello has arrived, and may be taken already
  void limit(std::uint64_t number);     // its hello must come within suspect_after
  void hear(std::uint64_t number);
  void on_message(std::uint64_t number, Message message, bool with_descriptors);
  void on_rank_hello(std::uint64_t number, const RankHello& hello);
  void refuse(std::uint64_t number, const absl::Status& why);  // a trusted peer is told why
  void forget(std::uint64_t number, const absl::Status& why);
  void drop(std::uint64_t number) noexcept;  // without a reason, or a line in the log

  boost::asio::io_context& io_;
  const Endpoint& endpoint_;
  const int folder_;
  const std::optional<Token> token_;
  const Epoch epoch_;
  const OnArrival on_arrival_;
  const OnStatusQuery on_status_query_;
  const OnRank on_rank_;
  const OnRefused on_refused_;
  std::optional<TlsContext> tls_;  // set over TCP, once bound
  Listener acceptor_;
  Protocol protocol_{0, 0};  // of the address where it listens
  boost::asio::steady_timer pause_;
  std::map<std::uint64_t, Newcomer> newcomers_;  // by number, in the order of arrival
  std::uint64_t next_number_ = 1;
  const std::shared_ptr<Decoder> decoder_ = std::make_shared<Decoder>();  // of long greetings
  EndpointWatch socket_file_;
  bool bound_ = false;
  bool pausing_ = false;  // the last attempt to accept failed and was logged; the next one comes after a pause
};

}  // namespace bascule::inline v0
