// Random events, checked against the invariants of routes. RELAY_SEED=N runs only that seed, RELAY_RUNS=N more.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "schemes/relay/routes_world.h"
#include "support/timing.h"

namespace bascule::inline v0::relay {
namespace {

constexpr std::uint64_t kRuns = 2000 / (test::kSlowdown * test::kSlowdown);
constexpr int kSteps = 600;

std::optional<std::uint64_t> asked_for(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional(std::strtoull(text, nullptr, 10));
}

TEST(RelayRoutesAtRandom, LeaveEveryInvariantAsItIs) {
  const std::optional<std::uint64_t> only = asked_for("RELAY_SEED");
  const std::uint64_t first = only.value_or(1), last = only.value_or(asked_for("RELAY_RUNS").value_or(kRuns));
  std::uint64_t events = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    RoutesWorld world(seed);
    const std::string wrong = world.run(kSteps);
    events += world.events();
    ASSERT_EQ(wrong, "") << "RELAY_SEED=" << seed;
  }
  RecordProperty("events", std::to_string(events));
}

}  // namespace
}  // namespace bascule::inline v0::relay
