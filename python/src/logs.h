// A queue of log lines from threads of a sender or a receiver, which must not run Python, to the thread that passes
// them to `logging`.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bascule::python {

class LogLines {
 public:
  static LogLines& instance();  // lives as long as the process
  static void renew();          // in a forked child: a thread of the parent may hold the old one's lock

  // Adds a line of the log with that number in python/bascule/_lifetime.py. Any thread may call it. If many lines are
  // waiting, it only counts further ones.
  void add(int log, std::string_view line);
  // Blocks until there are lines, and returns them. After stop() it returns at once, with the lines that are left.
  std::vector<std::pair<int, std::string>> take();
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<int, std::string>> lines_;
  std::size_t lost_ = 0;
  bool stopped_ = false;
};

}  // namespace bascule::python
