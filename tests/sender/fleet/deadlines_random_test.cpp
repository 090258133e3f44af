// Every deadline, with commit=each and commit=together, and workers that are late, dead or stopped. DEADLINES_SEED=N
// runs only that seed, and prints what happened.
#include "sender/fleet/deadlines_world.h"  // first: see there

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/timing.h"

namespace bascule::test {
namespace {

constexpr std::uint64_t kDeadlineRuns = 2000 / (kSlowdown * kSlowdown);

TEST(RandomDeadlines, EveryWorkerIsJudgedByItsOwnLimitAndEverySendEnds) {
  const char* const only = std::getenv("DEADLINES_SEED");
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const std::uint64_t last = only != nullptr ? first : kDeadlineRuns;
  std::map<std::string, int> late;
  int sends = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    DeadlinesWorld world(seed);
    const std::string wrong = world.run();
    ASSERT_TRUE(wrong.empty()) << "DEADLINES_SEED=" << seed << ": " << wrong << "\n" << world.trace();
    if (only != nullptr) std::puts(world.trace().c_str());
    for (const auto& [what, times] : world.late()) late[what] += times;
    sends += world.sends();
  }
  if (only != nullptr) return;
  EXPECT_GE(sends, static_cast<int>(kDeadlineRuns));
  for (const char* const what : {"its engine has not loaded it", "no ack", "no message that it is prepared",
                                 "its engine has not yielded", "no message that it is ready"})
    EXPECT_GT(late[what], 0) << "no run made a worker late with: " << what;
}

}  // namespace
}  // namespace bascule::test
