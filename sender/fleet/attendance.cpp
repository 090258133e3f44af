#include <bascule/sender/fleet/attendance.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// A trainer that never sends must not collect the names of all workers that ever came.
constexpr std::size_t kMostLeft = 10'000;

const WorkerReport* find(const SendReport& report, const std::string& worker) {
  const auto found = std::ranges::find(report.workers, worker, &WorkerReport::worker);
  return found == report.workers.end() ? nullptr : &*found;
}

// All ranks of a group flip together, so one of them tells about all.
bool has_group(const SendReport& report, const std::vector<const Member*>& ranks) {
  return std::ranges::any_of(ranks, [&](const Member* rank) { return find(report, rank->name()) != nullptr; });
}

std::string why_absent(const Member* worker, const std::vector<const Member*>& ranks) {
  if (worker != nullptr) return "it is connected, but has not been admitted yet";
  if (!ranks.empty()) return cat(ranks.size(), " of its ", ranks.front()->hello.ranks, " ranks are connected");
  return "it is not connected";
}

}  // namespace

void Attendance::left(const std::string& worker, const absl::Status& why) {
  if (left_.size() < kMostLeft) left_[worker] = why;
}

void Attendance::complete(SendReport& report, const std::vector<std::string>& names, const Roster& roster) const {
  if (!names.empty()) return add_absent(report, names, roster);
  report.expected = expected_.count;
  add_left(report);
  add_absent(report, expected_.names, roster);
}

void Attendance::add_left(SendReport& report) const {
  for (const auto& [worker, why] : left_)
    if (find(report, worker) == nullptr)
      report.workers.push_back({.worker = worker, .state = WorkerState::kEvicted, .error = why});
}

void Attendance::reported(const SendReport& report, const Roster& roster) noexcept {
  std::erase_if(left_, [&](const auto& entry) {
    const WorkerReport* const known = find(report, entry.first);
    return known == nullptr || known->state != WorkerState::kServing || roster.named(entry.first) != nullptr;
  });
}

void Attendance::add_absent(SendReport& report, const std::vector<std::string>& names, const Roster& roster) const {
  for (const std::string& name : names) {
    const std::vector<const Member*> ranks = roster.group(name);
    if (find(report, name) != nullptr || has_group(report, ranks)) continue;
    report.workers.push_back({.worker = name,
                              .state = WorkerState::kMissing,
                              .error = unavailable("expected, but ", why_absent(roster.named(name), ranks))});
  }
}

}  // namespace bascule::inline v0
