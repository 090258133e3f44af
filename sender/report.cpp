#include <bascule/sender/report.h>

#include <algorithm>

namespace bascule::inline v0 {

const char* to_string(WorkerState state) {
  switch (state) {
    case WorkerState::kServing: return "serving";
    case WorkerState::kCatchingUp: return "catching up";
    case WorkerState::kFailed: return "failed";
    case WorkerState::kEvicted: return "evicted";
  }
  return "unknown";
}

bool SendReport::complete() const {
  return std::ranges::all_of(workers, [](const WorkerReport& worker) { return worker.state == WorkerState::kServing; });
}

}  // namespace bascule::inline v0
