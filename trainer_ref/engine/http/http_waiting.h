// Waits on the server's thread for the engine's answers.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <bascule/trainer_ref/http/http_wire.h>

namespace bascule::ref {

// Shared with the engine's callback and with the watch on the socket.
template <typename Answer>
struct WaitingFor {
  explicit WaitingFor(boost::asio::io_context& io) : io(io), changed(io) {}
  boost::asio::io_context& io;
  boost::asio::steady_timer changed;
  std::optional<Answer> answer;
  bool hung_up = false;

  // Called from the engine's thread.
  static void tell(const std::shared_ptr<WaitingFor>& waiting, Answer answer) {
    boost::asio::post(waiting->io, [waiting, answer = std::move(answer)]() mutable {
      waiting->answer = std::move(answer);
      waiting->changed.cancel();
    });
  }
  static void wake(const std::shared_ptr<WaitingFor>& waiting) {
    boost::asio::post(waiting->io, [waiting] { waiting->changed.cancel(); });
  }
};

// Waits until there is an answer, the client has hung up, or `ready()`.
template <typename Answer, typename Ready>
boost::asio::awaitable<void> wait(WaitingFor<Answer>& waiting, Ready ready) {
  while (!waiting.answer && !waiting.hung_up && !ready()) {
    boost::system::error_code error;
    waiting.changed.expires_after(std::chrono::minutes(1));
    co_await waiting.changed.async_wait(with_error(error));
  }
}

}  // namespace bascule::ref
