#include <bascule/bench/stall_log.h>

#include <algorithm>

#include <bascule/bench/statistics.h>

namespace bascule::bench {
namespace {

double baseline(const std::vector<Boundary>& since_flip, double Elapsed::*clock) {
  std::vector<double> steps;
  for (std::size_t i = 1; i <= StallLog::kBaselineSteps; ++i) steps.push_back(since_flip[i].step.*clock);
  return quantile(steps, 0.5);
}

}  // namespace

void StallLog::add(const Boundary& boundary) {
  if (boundary.flipped) since_flip_.clear();
  if (since_flip_.empty() && !boundary.flipped) return;
  since_flip_.push_back(boundary);
  if (since_flip_.size() < kStepsToSettle) return;
  const auto stall_at = [&](const Boundary& at) {
    const auto lost = [&](double Elapsed::*clock) {
      return std::max(0.0, at.step.*clock - baseline(since_flip_, clock));
    };
    return Stall{.commit = at.commit,
                 .lost = {.wall_seconds = lost(&Elapsed::wall_seconds), .cpu_seconds = lost(&Elapsed::cpu_seconds)}};
  };
  flips_.push_back(stall_at(since_flip_.front()));
  ordinary_.push_back(stall_at(since_flip_.back()));
  since_flip_.clear();
}

void StallLog::clear() {
  flips_.clear();
  ordinary_.clear();
}

}  // namespace bascule::bench
