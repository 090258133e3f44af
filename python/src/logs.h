// Log lines on their way from threads of a sender or a receiver, which know no Python, to the thread that gives them to
// `logging`.
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
  static void renew();          // in a forked child: a thread that is not there may hold the one before

  // Of the log with that number in python/bascule/_lifetime.py; any thread. Beyond some lines that nobody took, it only
  // counts them.
  void add(int log, std::string_view line);
  // Blocks until there are lines, or stop(); then it returns none.
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
