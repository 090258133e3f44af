// Threads for work that would hold up the thread that serves sockets: reading JSON, writing large answers, rendering
// chat templates, encoding texts.
//
// There are two threads. One takes only small work, so a request with megabytes of text holds up no small one.
//
// Threads: any but its own may call it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"

namespace bascule::ref {

class WorkPool {
  struct Task;

 public:
  // Long work looks at the token from time to time, and returns early once a stop was requested.
  using Job = std::function<void(const std::stop_token& stop)>;

  // Owns work. When it is destroyed, work that has not begun never begins, and running work is asked to stop.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket();

   private:
    friend class WorkPool;
    explicit Ticket(std::shared_ptr<Task> task) : task_(std::move(task)) {}
    std::shared_ptr<Task> task_;
  };

  explicit WorkPool(std::size_t most_waiting);
  // Asks running work to stop and waits for it; other work never begins.
  ~WorkPool();

  // Runs `job` on one of the threads. `bytes` says how much there is to do. Returns RESOURCE_EXHAUSTED if
  // `most_waiting` others of its size, small or large, wait already.
  absl::StatusOr<Ticket> start(std::size_t bytes, Job job);

 private:
  using Queue = std::deque<std::weak_ptr<Task>>;
  void run(std::size_t thread);
  std::shared_ptr<Task> next(std::size_t thread);  // null: none waits

  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Queue small_, large_;                           // guarded by mutex_, like all below
  std::array<std::shared_ptr<Task>, 2> running_;  // by thread
  bool stopping_ = false;
  std::array<std::jthread, 2> threads_;  // the first takes only small work
};

}  // namespace bascule::ref
