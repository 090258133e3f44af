// StayAwake: for a while, keeps an I/O thread from sleeping between events.
//
// A thread that sleeps while a GPU packs a model wakes up late, by 0.1 ms or more on a virtual machine, and between the
// last byte and the last ack there would be four such wakes. Since the processors are idle while a GPU moves a
// version's bytes, the I/O threads of both ends stay awake meanwhile: they poll for events and yield.
#pragma once

#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <memory>
#include <thread>
#include <utility>

#include <bascule/transport/caught.h>
#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

// All calls from the io_context's one thread.
class StayAwake {
 public:
  // The default suffices for 200 GB, which take 100 ms to pack.
  explicit StayAwake(boost::asio::io_context& io, absl::Duration at_most = absl::Milliseconds(100))
      : io_(io), at_most_(at_most) {}

  void begin() {
    state_->until = Deadline(at_most_).at();
    if (!std::exchange(state_->awake, true)) turn(io_, state_);
  }
  void end() { state_->until = {}; }  // also before this object is destroyed

 private:
  struct State {
    Clock::time_point until{};
    bool awake = false;
  };

  // A handler is always queued, so the io_context polls for events instead of waiting for them.
  static void turn(boost::asio::io_context& io, const std::shared_ptr<State>& state) {
    state->awake = Clock::now() < state->until;
    if (!state->awake) return;
    std::this_thread::yield();
    state->awake = caught([&] { boost::asio::post(io, [&io, state] { turn(io, state); }); }).ok();
  }

  boost::asio::io_context& io_;
  const absl::Duration at_most_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace bascule::inline v0
