#include <bascule/trainer_ref/engine/http/stop_strings.h>

#include <algorithm>
#include <utility>

namespace bascule::ref {
namespace {

// Bytes at the end of `text` that a stop string may begin with.
std::size_t bytes_to_hold(std::string_view text, const std::vector<std::string>& strings) {
  std::size_t most = 0;
  for (const std::string& each : strings)
    for (std::size_t count = std::min(each.size() - 1, text.size()); count > most; --count)
      if (text.ends_with(std::string_view(each).substr(0, count))) {
        most = count;
        break;
      }
  return most;
}

}  // namespace

std::string StopStrings::push(std::string_view more) {
  if (found_) return {};
  if (!strings_ || strings_->empty()) return std::string(more);
  held_ += more;
  std::size_t begin = std::string::npos;
  for (const std::string& each : *strings_) {
    const std::size_t at = held_.find(each, passed_ < each.size() ? 0 : passed_ - each.size() + 1);
    if (at >= begin) continue;
    begin = at;
    found_ = each;
  }
  if (found_) return std::exchange(held_, {}).substr(0, begin + (included_ ? found_->size() : 0));
  return release();
}

std::string StopStrings::pass(std::string_view more) {
  if (found_) return {};
  if (!strings_ || strings_->empty()) return std::string(more);
  held_ += more;
  passed_ = held_.size();
  return release();
}

std::string StopStrings::release() {
  const std::size_t certain = held_.size() - bytes_to_hold(held_, *strings_);
  std::string text = held_.substr(0, certain);
  held_.erase(0, certain);
  passed_ -= std::min(passed_, certain);
  return text;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace bascule::ref
