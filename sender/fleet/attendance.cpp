#include <bascule/sender/fleet/attendance.h>

#include <algorithm>
#include <set>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// A trainer that never sends must not collect the names of all workers that ever came.
constexpr std::size_t kMostLeft = 10'000;

std::string why_absent(const Member* worker, const std::vector<const Member*>& ranks) {
  if (worker != nullptr) return "it is connected, but has not been admitted yet";
  if (!ranks.empty()) return cat(ranks.size(), " of its ", ranks.front()->hello.ranks, " ranks are connected");
  return "it is not connected";
}

}  // namespace

void Attendance::left(const std::string& worker, const absl::Status& why) {
  if (left_.size() < kMostLeft) left_[worker] = {.why = why};
}

void Attendance::complete(SendReport& report, const std::vector<std::string>& names, const Roster& roster) const {
  std::set<std::string, std::less<>> reported;  // tens of thousands may be expected
  for (const WorkerReport& worker : report.workers) reported.insert(worker.worker);
  if (names.empty()) {
    report.expected = expected_.count;
    for (const auto& [worker, left] : left_)
      if (reported.insert(worker).second)
        report.workers.push_back({.worker = worker, .state = WorkerState::kEvicted, .error = left.why});
  }
  // All ranks of a group flip together, so one of them tells about all.
  const auto is_reported = [&](const Member* rank) { return reported.contains(rank->name()); };
  for (const std::string& name : names.empty() ? expected_.names : names) {
    const std::vector<const Member*> ranks = roster.group(name);
    if (std::ranges::any_of(ranks, is_reported) || !reported.insert(name).second) continue;
    report.workers.push_back({.worker = name,
                              .state = WorkerState::kMissing,
                              .error = unavailable("expected, but ", why_absent(roster.named(name), ranks))});
  }
}

void Attendance::reported(const SendReport& report, const Roster& roster) noexcept {
  for (const WorkerReport& worker : report.workers)
    if (const auto left = left_.find(worker.worker); left != left_.end() && worker.state == WorkerState::kServing)
      left->second.stays = roster.named(worker.worker) == nullptr;
  for (auto left = left_.begin(); left != left_.end();)
    left = std::exchange(left->second.stays, false) ? std::next(left) : left_.erase(left);
}

}  // namespace bascule::inline v0
