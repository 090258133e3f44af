// Attendance: who is missing from a report. It knows the workers that should be there, and those that left since the
// last report: without it, a version that no worker serves would look like a success.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/sender/expected_workers.h>
#include <bascule/sender/fleet/roster.h>
#include <bascule/sender/report.h>

namespace bascule::inline v0 {

class Attendance {
 public:
  explicit Attendance(ExpectedWorkers expected) : expected_(std::move(expected)) {}

  void expect(ExpectedWorkers workers) { expected_ = std::move(workers); }
  // A worker that versions could be sent to is gone. The next report to all names it, unless it has come back by then.
  void left(const std::string& worker, const absl::Status& why);
  // Adds the missing workers to a report on a version for the workers and groups in `names` (empty: all).
  void complete(SendReport& report, const std::vector<std::string>& names, const Roster& roster) const;
  // `report`, on a version to all, is complete. A worker that acknowledged that version and left right after that stays
  // for the next report.
  void reported(const SendReport& report, const Roster& roster) noexcept;

 private:
  struct Left {
    absl::Status why;
    bool stays = false;  // in reported()
  };

  ExpectedWorkers expected_;
  std::map<std::string, Left> left_;  // by name, since the last report
};

}  // namespace bascule::inline v0
