#include <bascule/transport/log_limit.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr int kSameAtOnce = 3, kAllAtOnce = 2000;
constexpr Clock::duration kSameEvery = std::chrono::minutes(1), kAllEvery = std::chrono::seconds(10);

}  // namespace

std::optional<std::string> LogLimit::pass(const std::string& line, Clock::time_point now) {
  Said* const before = said_.find(line);
  if (before != nullptr && !before->allowance.has_room(now, kSameAtOnce, kSameEvery)) {
    ++before->left_out;
    return std::nullopt;
  }
  if (!all_.has_room(now, kAllAtOnce, kAllEvery)) {
    ++left_out_;
    return std::nullopt;
  }
  std::string text = line;
  if (before != nullptr && before->left_out > 0)
    text += cat("; and ", before->left_out, " more such lines since the last one");
  if (left_out_ > 0) text += cat("; and ", left_out_, " other lines about peers were left out before this one");
  Said& said = said_.set(line);
  said.allowance.use(now, kSameEvery);
  said.left_out = 0;
  all_.use(now, kAllEvery);
  left_out_ = 0;
  return text;
}

}  // namespace bascule::inline v0
