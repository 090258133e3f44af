// Waits on the server's thread for other threads: the engine's and the WorkPool's.
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

// One request that waits. Shared with the watch on its client's socket and with the other threads' callbacks.
struct Waiting {
  explicit Waiting(boost::asio::io_context& io) : io(io), changed(io) {}
  boost::asio::io_context& io;
  boost::asio::steady_timer changed;
  bool hung_up = false;  // the client

  // The server's thread.
  void hang_up() {
    hung_up = true;
    changed.cancel();
  }
  // Any thread.
  static void wake(const std::shared_ptr<Waiting>& waiting) {
    boost::asio::post(waiting->io, [waiting] { waiting->changed.cancel(); });
  }
};

// A value that another thread makes.
template <typename T>
class Promised {
 public:
  explicit Promised(std::shared_ptr<Waiting> waiting) : waiting_(std::move(waiting)) {}

  // Any thread. Call it once.
  void tell(T value) const {
    boost::asio::post(waiting_->io, [waiting = waiting_, told = told_, value = std::move(value)]() mutable {
      *told = std::move(value);
      waiting->changed.cancel();
    });
  }
  // The server's thread; null until it was told.
  T* get() const { return told_->has_value() ? &**told_ : nullptr; }

 private:
  std::shared_ptr<Waiting> waiting_;
  std::shared_ptr<std::optional<T>> told_ = std::make_shared<std::optional<T>>();
};

// Waits until the client has hung up, or `ready()`.
template <typename Ready>
boost::asio::awaitable<void> wait(Waiting& waiting, Ready ready) {
  while (!waiting.hung_up && !ready()) {
    boost::system::error_code error;
    waiting.changed.expires_after(std::chrono::minutes(1));
    co_await waiting.changed.async_wait(with_error(error));
  }
}

}  // namespace bascule::ref
