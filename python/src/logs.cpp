#include "logs.h"

#include <atomic>
#include <iterator>
#include <utility>

namespace bascule::python {
namespace {

constexpr std::size_t kMostLines = 10'000;

// Never deleted: threads may still log while the process ends.
std::atomic<LogLines*>& current() {
  static std::atomic<LogLines*> lines = new LogLines;
  return lines;
}

}  // namespace

LogLines& LogLines::instance() { return *current(); }

void LogLines::renew() { current() = new LogLines; }

std::function<void(std::string_view)> LogLines::sink(int log, bool is_warning) {
  return [=](std::string_view line) { instance().add(log, line, is_warning); };
}

void LogLines::add(int log, std::string_view line, bool is_warning) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= kMostLines) {
    ++lost_;
    return;
  }
  lines_.emplace_back(log, line, is_warning);
  changed_.notify_one();
}

std::vector<LogLines::Line> LogLines::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || !lines_.empty(); });
  std::vector<Line> taken(std::make_move_iterator(lines_.begin()), std::make_move_iterator(lines_.end()));
  lines_.clear();
  if (const std::size_t lost = std::exchange(lost_, 0); lost > 0)
    taken.emplace_back(0, std::to_string(lost) + " more lines were dropped: they came too fast", true);
  return taken;
}

void LogLines::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace bascule::python
