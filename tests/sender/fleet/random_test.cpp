// Checks the fleet's invariants under random events. The workers and the public thread are models that keep the
// protocol, in any order and with any delay; some workers break it. Each model records what it reads, independently of
// the fleet.
//
// A run is a list of small numbers, each of which selects one of the steps possible then, so any part of the list is
// also a run. A failing run is reduced to a shorter one that still fails, and printed with its seed (FLEET_SEED=N runs
// only that seed, FLEET_RUNS=N more runs).
#include "sender/fleet/random_world.h"  // first: see there

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "support/timing.h"

namespace bascule::test {
namespace {

constexpr std::uint64_t kRuns = 9000 / (kSlowdown * kSlowdown);  // a million events
constexpr int kSteps = 250;

std::optional<std::uint64_t> asked_for(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional(std::strtoull(text, nullptr, 10));
}

std::vector<RandomWorld::Step> steps_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<RandomWorld::Step> steps;
  for (int i = 0; i < kSteps; ++i)
    steps.push_back({static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())});
  return steps;
}

// Removes smaller and smaller pieces, as long as it still fails.
std::vector<RandomWorld::Step> shrunk(std::uint64_t seed, std::vector<RandomWorld::Step> steps) {
  for (std::size_t piece = steps.size() / 2; piece > 0; piece /= 2) {
    for (std::size_t at = 0; at + piece <= steps.size();) {
      std::vector<RandomWorld::Step> fewer = steps;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at),
                  fewer.begin() + static_cast<std::ptrdiff_t>(at + piece));
      if (RandomWorld(seed).run(fewer).empty()) {
        at += piece;
      } else {
        steps = std::move(fewer);
      }
    }
  }
  return steps;
}

TEST(RandomEvents, LeaveEveryInvariantAsItIs) {
  const std::optional<std::uint64_t> only = asked_for("FLEET_SEED");
  const std::uint64_t first = only.value_or(1), last = only.value_or(asked_for("FLEET_RUNS").value_or(kRuns));
  std::uint64_t events = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    RandomWorld world(seed);
    const std::string wrong = world.run(steps_of(seed));
    events += world.events();
    if (wrong.empty()) continue;
    RandomWorld again(seed);
    const std::string why = again.run(shrunk(seed, steps_of(seed)));
    FAIL() << "FLEET_SEED=" << seed << ": " << wrong << "\ncut down: " << why << "\n" << again.trace();
  }
  RecordProperty("events", std::to_string(events));
}

}  // namespace
}  // namespace bascule::test
