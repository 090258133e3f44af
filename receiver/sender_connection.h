// SenderConnection: the connection to a sender. It searches, hands over received messages, and gives up a sender that
// falls silent.
//
//   state       on                                     does                         to
//   searching   connected                              calls `connected`            greeting
//               no connection                          calls `alone`, pauses        searching
//   greeting    no welcome: every half second          calls `unwelcomed`           greeting
//               welcomed()                                                          attached
//   any         hang-up, silence                       calls `lost`                 as the caller decides
//               hang_up()                                                           searching, once retry() is called
//               end()                                                               ended, for good
//
// Threads: the io_context's one thread.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include <bascule/receiver/connector.h>
#include <bascule/receiver/options.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/wire/channel.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

class SenderConnection {
 public:
  struct Handlers {
    std::function<void()> connected;  // called to greet
    std::function<void()> unwelcomed;
    std::function<void(Message, std::vector<UniqueFd>)> heard;
    std::function<void(const absl::Status& why)> alone;          // `why` as from Connector::connect
    std::function<void(const absl::Status& why)> lost;           // the connection is hung up
    std::function<void(const absl::Status& why)> endpoint_gone;  // called once each time it goes, attached or not
    std::function<void()> endpoint_back;
    std::function<void()> beat;  // called with each heartbeat
  };

  // `options` and `endpoint` must outlive this object; `endpoint` may change until start(). `scope` must be closed, and
  // close() called, before this object is destroyed.
  SenderConnection(boost::asio::io_context& io, HandlerScope scope, const ReceiverOptions& options,
                   const Endpoint& endpoint, std::optional<Token> token, Handlers handlers);

  void start();
  // Does nothing without a connection.
  void send(const Message& message, const std::vector<int>& descriptors = {}) noexcept;
  void welcomed();
  void hang_up() noexcept;
  // Searches again after a pause, which grows from 10 ms to half a second. After a final refusal it grows from half a
  // second to ten, and ends within a heartbeat once the socket is no longer the refusing sender's.
  void retry(bool refused_for_good = false) noexcept;
  void flipped() { tries_ = 0; }
  void close() noexcept;  // ends, and hangs up
  void end();             // searches no longer; a present connection stays until hang_up()

  bool connected() const { return channel_ != nullptr; }
  bool attached() const { return state_ == State::kAttached; }

 private:
  enum class State { kSearching, kGreeting, kAttached, kEnded };
  using SocketMark = std::tuple<dev_t, ino_t, std::int64_t, std::int64_t>;  // tells it from a later one of its name

  void search();
  void greet(std::shared_ptr<Channel> channel);
  void wait_for_welcome(std::chrono::milliseconds pause);
  void on_heartbeat();
  void look_after_sender();
  void watch_endpoint();
  SocketMark socket_mark() const;

  const HandlerScope scope_;
  const ReceiverOptions& options_;
  const Endpoint& endpoint_;
  const Handlers handlers_;
  Connector connector_;
  boost::asio::steady_timer retry_timer_, heartbeat_timer_;
  std::shared_ptr<Channel> channel_;
  State state_ = State::kSearching;
  int tries_ = 0;                         // since the last flip: a worker that keeps failing pauses longer
  int refusals_ = 0;                      // final ones in a row
  std::optional<SocketMark> refused_by_;  // during a pause after a final refusal
  bool was_connected_ = false;            // at any time so far
  bool endpoint_gone_ = false;            // its folder or socket was removed, and `endpoint_gone` called
};

}  // namespace bascule::inline v0
