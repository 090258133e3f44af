// StayAwake: keeps an I/O thread from sleeping between events, for a while.
//
// A thread that has slept for as long as a GPU packs a model wakes late, on a virtual machine by 0.1 ms and more; four
// such wakes would lie between the last byte and the last ack. Where a version's bytes are a GPU's work, and the
// processors have nothing to do, the I/O threads of both ends stay awake while it is under way: they look for events
// without pause, and yield.
#pragma once

#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <thread>

#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

// All calls from the io_context's one thread.
class StayAwake {
 public:
  // 100 ms: what 200 GB take to pack.
  explicit StayAwake(boost::asio::io_context& io, absl::Duration at_most = absl::Milliseconds(100))
      : io_(io), at_most_(at_most) {}

  void begin() {
    until_ = Deadline(at_most_).at();
    if (!std::exchange(awake_, true)) turn();
  }
  void end() { until_ = {}; }

 private:
  // A handler that is always there: between it and the next, events are looked for and not waited for.
  void turn() {
    awake_ = Clock::now() < until_;
    if (!awake_) return;
    std::this_thread::yield();
    boost::asio::post(io_, [this] { turn(); });
  }

  boost::asio::io_context& io_;
  const absl::Duration at_most_;
  Clock::time_point until_{};
  bool awake_ = false;
};

}  // namespace bascule::inline v0
