// TaskThread: one thread that runs tasks in the order they were given, so that an I/O thread never waits for bytes.
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
  void stop();  // finishes the task under way, drops the rest; later ones are never run

  // From any thread; returns at once. What a task holds is released on the thread, before the next one runs.
  void submit(std::function<void()> task);
  // Where no task waits or is under way, runs it before it returns, as if on the thread; else as submit(). From one
  // thread, which spares it two wakes, and never from a task.
  void run_or_submit(std::function<void()> task);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  bool working_ = false, busy_ = false;  // a task runs on the thread, or in run_or_submit()
  std::thread thread_;
};

}  // namespace bascule::inline v0
