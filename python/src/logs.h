// A queue of log lines. The threads of senders and receivers, which must not wait for Python, put them in; a thread of
// Python takes them out and passes them to `logging`.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace bascule::python {

class LogLines {
 public:
  static LogLines& instance();  // lives as long as the process
  static void renew();          // in a forked child: a thread of the parent may hold the old one's lock

  // Adds a line of the log with that number in python/bascule/_lifetime.py. Any thread may call it. If many lines are
  // waiting, it only counts further ones.
  void add(int log, std::string_view line, bool is_warning);
  // What a sender or receiver calls with the lines of that log.
  static std::function<void(std::string_view)> sink(int log, bool is_warning);
  // Blocks until there are lines, and returns them. After stop() it returns at once, with the lines that are left.
  using Line = std::tuple<int, std::string, bool>;  // the log's number, the text, whether it is a warning
  std::vector<Line> take();
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Line> lines_;
  std::size_t lost_ = 0;
  bool stopped_ = false;
};

}  // namespace bascule::python
