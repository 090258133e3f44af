// Random worlds over a receiver: its session, its gate, its bookkeeping of leases, and an engine that waits. Without a
// connection no call of the engine waits; while pending() is true the descriptor is readable; what an engine reads is
// whole; and a lease ends once.
//
// A failure prints its seed and its steps. SESSION_SEED=N runs only that seed, SESSION_RUNS=N more seeds.
#include "receiver/session_world.h"  // first: see there

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

namespace bascule::test {
namespace {

constexpr std::uint64_t kRuns = 200 / kSlowdown;
constexpr int kSteps = 80;
constexpr int kFailures = 3;  // that are reported
constexpr int kAtOnce = 16;   // worlds: they mostly wait for one another's threads

std::optional<std::uint64_t> asked_for_session(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional(std::strtoull(text, nullptr, 10));
}

TEST(RandomSession, LetsNoEngineWaitInVainAndEndsEachLeaseOnce) {
  const std::optional<std::uint64_t> only = asked_for_session("SESSION_SEED");
  const std::uint64_t last = only.value_or(asked_for_session("SESSION_RUNS").value_or(kRuns));
  std::atomic<std::uint64_t> next = only.value_or(1);
  std::atomic<int> failed = 0;
  const auto run = [&] {
    for (std::uint64_t seed = next++; seed <= last && failed < kFailures; seed = next++) {
      auto world = std::make_unique<SessionWorld>(seed);
      const std::string wrong = world->run(kSteps);
      if (wrong.empty()) continue;
      if (++failed <= kFailures) ADD_FAILURE() << "SESSION_SEED=" << seed << ": " << wrong << "\n" << world->trace();
      static_cast<void>(world.release());  // its engine may wait for ever
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kAtOnce; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace bascule::test
