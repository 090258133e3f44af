// TaskThread: one thread that runs tasks in the order in which they were submitted. An I/O thread gives it the tasks
// that wait for bytes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace bascule::inline v0 {

class TaskThread {
 public:
  TaskThread();
  ~TaskThread() { stop(); }
  void stop();  // finishes the running task, then ends the thread: tasks that wait, or are submitted later, never run

  // Queues a task. Any thread; returns at once. A task's captures are destroyed on this object's thread, before the
  // next task runs. A task should throw nothing: an exception only ends that task. If memory for the queue runs out,
  // this waits for it.
  void submit(std::function<void()> task);
  // If no task waits or runs, runs this one inside the call, even after stop(); that saves two wakes. Otherwise like
  // submit(). Call it from one thread only, and never from a task.
  void run_or_submit(std::function<void()> task);
  [[nodiscard]] bool is_this() const { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  void push(std::function<void()> task);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  bool working_ = false, busy_ = false;  // a task runs on the thread; a task runs in run_or_submit()
  std::thread thread_;
};

}  // namespace bascule::inline v0
