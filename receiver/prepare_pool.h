// PreparePool: the few threads on which all receivers of this process prepare versions. Each receiver has a queue,
// whose tasks run one at a time, in the order in which they were submitted.
//
//   queue of receiver 1  task task      ┐
//   queue of receiver 2  task           ├─ a thread takes the queue that has waited longest, and runs one task of it
//   queue of receiver 3  task task task ┘
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bascule::inline v0 {

class TaskQueue;

class PreparePool {
 public:
  static constexpr std::size_t kMostThreads = 4;  // more only while some of them wait for engines (Waiting)

  // Returns this process's pool. It has one thread, and a further one when a task would wait; a second without work
  // ends that. Throws std::system_error if no thread can be started.
  static std::shared_ptr<PreparePool> get();

  PreparePool();
  ~PreparePool();
  PreparePool(const PreparePool&) = delete;
  PreparePool& operator=(const PreparePool&) = delete;

  // While a task waits for an engine, another thread may take its place: that engine may itself wait for a version that
  // this pool must prepare. Make one on a thread of the pool, only for a wait that lasts.
  class Waiting {
   public:
    explicit Waiting(PreparePool& pool);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    PreparePool& pool_;
  };

 private:
  friend class TaskQueue;
  // With mutex_ held; `from_thread`: by a thread that takes the next queue at once.
  void line_up(TaskQueue& queue, bool from_thread = false);
  void leave_line(TaskQueue& queue);
  void add_threads(std::size_t free);  // if fewer threads are free than queues stand in line
  void add_thread();
  void leave();  // ends the calling thread, once it returns
  void work();

  std::mutex mutex_;  // also of the queues
  std::condition_variable changed_;
  TaskQueue* first_ = nullptr;  // of the queues that have tasks and none running
  TaskQueue* last_ = nullptr;
  std::size_t in_line_ = 0;             // queues
  std::size_t waiting_ = 0, idle_ = 0;  // threads
  bool ending_ = false;
  std::vector<std::thread> threads_;
  std::vector<std::thread> left_;  // ended, and not joined yet
};

// One receiver's tasks.
class TaskQueue {
 public:
  explicit TaskQueue(std::shared_ptr<PreparePool> pool) : pool_(std::move(pool)) {}
  ~TaskQueue() { stop(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  void stop();  // waits for the running task: tasks that wait, or are submitted later, never run. Not from a task

  // Queues a task. Any thread; returns at once. A task's captures are destroyed on the thread that ran it, before the
  // next task runs. A task should throw nothing: an exception only ends that task. If memory for the queue runs out,
  // this waits for it.
  void submit(std::function<void()> task);
  // If no task waits or runs, runs this one inside the call, even after stop(); that saves two wakes. Otherwise like
  // submit(). Call it from one thread only, and never from a task.
  void run_or_submit(std::function<void()> task);
  [[nodiscard]] bool is_this_thread() const;  // whether a task of this queue is calling
  PreparePool& pool() { return *pool_; }

 private:
  friend class PreparePool;
  void push(std::function<void()> task);  // with the pool's mutex held
  void run_first(std::unique_lock<std::mutex>& lock);
  void end_task(bool on_thread_of_pool = false);

  const std::shared_ptr<PreparePool> pool_;
  // All with the pool's mutex held.
  std::deque<std::function<void()>> tasks_;
  TaskQueue* next_ = nullptr;                               // in the pool's line
  bool in_line_ = false, busy_ = false, stopping_ = false;  // busy: a task runs
  std::thread::id runs_on_;
  std::condition_variable idle_;  // no longer busy
};

}  // namespace bascule::inline v0
