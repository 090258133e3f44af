// Random events, checked against the invariants of groups. A run is a list of small numbers, each of which selects a
// possible event, so any part of the list is also a run. A failing run is shortened while it still fails, and printed
// with its seed (PLANNER_SEED=N runs only that one, PLANNER_RUNS=N more).
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <random>

#include "schemes/nccl/planner_world.h"
#include "support/timing.h"

namespace bascule::inline v0::nccl {
namespace {

using test::kSlowdown;

constexpr std::uint64_t kRuns = 4000 / (kSlowdown * kSlowdown * kSlowdown);
constexpr int kSteps = 600;

std::optional<std::uint64_t> asked_for(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional(std::strtoull(text, nullptr, 10));
}

std::vector<PlannerWorld::Step> steps_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<PlannerWorld::Step> steps;
  for (int i = 0; i < kSteps; ++i)
    steps.push_back({static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())});
  return steps;
}

// Removes smaller and smaller pieces as long as the run still fails.
std::vector<PlannerWorld::Step> shrunk(std::uint64_t seed, std::vector<PlannerWorld::Step> steps) {
  for (std::size_t piece = steps.size() / 2; piece > 0; piece /= 2) {
    for (std::size_t at = 0; at + piece <= steps.size();) {
      std::vector<PlannerWorld::Step> fewer = steps;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at),
                  fewer.begin() + static_cast<std::ptrdiff_t>(at + piece));
      if (PlannerWorld(seed).run(fewer).empty()) {
        at += piece;
      } else {
        steps = std::move(fewer);
      }
    }
  }
  return steps;
}

TEST(NcclPlannerAtRandom, LeaveEveryInvariantAsItIs) {
  const std::optional<std::uint64_t> only = asked_for("PLANNER_SEED");
  const std::uint64_t first = only.value_or(1), last = only.value_or(asked_for("PLANNER_RUNS").value_or(kRuns));
  std::uint64_t events = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    PlannerWorld world(seed);
    const std::string wrong = world.run(steps_of(seed));
    events += world.events();
    if (wrong.empty()) continue;
    PlannerWorld again(seed);
    const std::string why = again.run(shrunk(seed, steps_of(seed)));
    FAIL() << "PLANNER_SEED=" << seed << ": " << wrong << "\ncut down: " << why << "\n" << again.trace();
  }
  RecordProperty("events", std::to_string(events));
}

}  // namespace
}  // namespace bascule::inline v0::nccl
