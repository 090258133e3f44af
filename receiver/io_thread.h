// IoThread: the I/O thread of all receivers of this process. It starts with the first receiver, and ends with the last.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <thread>

namespace bascule::inline v0 {

class IoThread {
 public:
  // Returns the thread of this process; a forked child gets its own. Throws std::system_error if none can be started.
  // The last owner must let go of it on another thread.
  static std::shared_ptr<IoThread> get();

  IoThread();
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  boost::asio::io_context& io() { return io_; }
  [[nodiscard]] bool is_this() const { return thread_.get_id() == std::this_thread::get_id(); }
  // Blocks until everything that was posted before has been done, then `work`. Not from the I/O thread.
  void run(const std::function<void()>& work);

 private:
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace bascule::inline v0
