#include <bascule/sender/report.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_join.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

namespace {

bool serves(const WorkerReport& worker) { return worker.state == WorkerState::kServing; }

}  // namespace

const char* to_string(WorkerState state) {
  switch (state) {
    case WorkerState::kServing: return "serving";
    case WorkerState::kCatchingUp: return "catching up";
    case WorkerState::kFailed: return "failed";
    case WorkerState::kEvicted: return "evicted";
    case WorkerState::kMissing: return "missing";
  }
  return "unknown";
}

std::optional<double> WorkerReport::verified_share() const {
  if (!bytes) return std::nullopt;
  return bytes->read == 0 ? 1 : static_cast<double>(bytes->verified) / static_cast<double>(bytes->read);
}

bool SendReport::complete() const { return std::ranges::all_of(workers, serves) && std::ssize(workers) >= expected; }

std::string SendReport::why_incomplete() const {
  constexpr std::size_t kShown = 32;
  std::vector<std::string> why;
  std::size_t more = 0;
  for (const WorkerReport& worker : workers) {
    if (serves(worker)) continue;
    if (why.size() == kShown) {
      ++more;
      continue;
    }
    why.push_back(cat(worker.worker, " is ", to_string(worker.state),
                      worker.error.ok() ? "" : cat(": ", message_of(worker.error))));
  }
  if (more > 0) why.push_back(cat("and ", more, " more workers do not serve it"));
  if (const auto serving = std::ranges::count_if(workers, serves); serving < expected)
    why.push_back(cat("expected at least ", expected, expected == 1 ? " worker" : " workers", ", found ", serving));
  return absl::StrJoin(why, "; ");
}

}  // namespace bascule::inline v0
