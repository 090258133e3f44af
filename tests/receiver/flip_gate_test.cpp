#include <bascule/receiver/flip_gate.h>

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "support/timing.h"

namespace bascule {
namespace {

LocalVersion target(Version version) {
  return {.attachment = nullptr,
          .version = version,
          .slot = {.epoch = 1, .index = static_cast<std::uint32_t>(version % 2)},
          .lease = {},
          .weights = nullptr,
          .decided_at = Clock::now()};
}

std::optional<LocalVersion> take(FlipGate& gate) {
  bool late = false;
  std::optional<LocalVersion> taken = gate.take(Deadline(test::patience()), late);
  EXPECT_FALSE(late);
  return taken;
}

TEST(FlipGate, HandsOverWhatWasDecided) {
  FlipGate gate;
  EXPECT_FALSE(gate.pending());
  EXPECT_FALSE(take(gate).has_value());
  EXPECT_FALSE(gate.decide(target(1)).has_value());
  EXPECT_TRUE(gate.pending());
  EXPECT_EQ(take(gate)->version, 1);
  EXPECT_FALSE(gate.pending());
  EXPECT_FALSE(take(gate).has_value()) << "once";
}

TEST(FlipGate, GivesBackAVersionThatNobodyTook) {
  FlipGate gate;
  gate.decide(target(1));
  EXPECT_EQ(gate.decide(target(2))->version, 1);
  EXPECT_EQ(take(gate)->version, 2);
  EXPECT_FALSE(gate.decide(target(3)).has_value()) << "2 was taken";
}

TEST(FlipGate, ThatIsLostHandsOverNothingAnyMore) {
  FlipGate gate;
  gate.decide(target(1));
  gate.offer(target(1));
  gate.lose();
  gate.decide(target(2));
  gate.ask_to_yield({}, [] { FAIL() << "there is nothing to wait for"; });
  EXPECT_TRUE(gate.pending());
  EXPECT_FALSE(take(gate).has_value());
  std::vector<LocalVersion> dropped;
  EXPECT_FALSE(gate.take(1, Deadline(absl::InfiniteDuration()), dropped).has_value());
  EXPECT_TRUE(gate.pending());
  EXPECT_TRUE(gate.poisoned());
}

TEST(FlipGate, ThatIsLostLetsGoOfWhoWaitsForAVersion) {
  FlipGate gate;
  std::vector<LocalVersion> dropped;
  std::thread loser([&] { gate.lose(); });
  EXPECT_FALSE(gate.take(1, Deadline(absl::Hours(1)), dropped).has_value());
  loser.join();
}

TEST(FlipGate, LetsGoOfWhoIsInterruptedAndHandsOverAllTheSameLater) {
  FlipGate gate;
  std::vector<LocalVersion> dropped;
  int asked = 0;
  const auto interrupted = [&] { return ++asked == 2; };
  EXPECT_FALSE(gate.take(1, Deadline(absl::InfiniteDuration()), dropped, interrupted).has_value());
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(gate.pending()) << "nobody is poisoned";
  gate.offer(target(1));
  EXPECT_EQ(gate.take(1, Deadline(absl::InfiniteDuration()), dropped, interrupted)->version, 1);
}

TEST(FlipGate, HandsOverWhatCameWhileItAsked) {
  FlipGate gate;
  std::vector<LocalVersion> dropped;
  const auto interrupted = [&] { return gate.offer(target(1)), true; };
  EXPECT_EQ(gate.take(1, Deadline(absl::InfiniteDuration()), dropped, interrupted)->version, 1);
}

TEST(FlipGate, KeepsTheAttachmentOfWhatWaits) {
  FlipGate gate;
  const auto attachment = std::make_shared<Attachment>();
  LocalVersion one = target(1);
  one.attachment = attachment;
  gate.decide(std::move(one));
  EXPECT_EQ(attachment.use_count(), 2);
  EXPECT_TRUE(take(gate));
  EXPECT_EQ(attachment.use_count(), 1);
}

// The I/O thread decides while the engine commits: each version is taken or given back once, in order, and writes
// before decide() are seen after take().
TEST(FlipGate, LosesNoVersionBetweenTwoThreads) {
  constexpr Version kVersions = 50000;
  FlipGate gate;
  std::vector<std::uint64_t> written(kVersions + 1);  // not atomic: the gate orders it
  std::vector<Version> skipped, taken;
  std::thread decider([&] {
    for (Version version = 1; version <= kVersions; ++version) {
      written[version] = ~version;
      if (const std::optional<LocalVersion> old = gate.decide(target(version))) skipped.push_back(old->version);
    }
  });
  while (taken.empty() || taken.back() != kVersions) {
    if (!gate.pending()) continue;
    const std::optional<LocalVersion> next = take(gate);
    if (!next) continue;
    ASSERT_EQ(written[next->version], ~next->version);
    ASSERT_TRUE(taken.empty() || taken.back() < next->version);
    taken.push_back(next->version);
  }
  decider.join();
  std::multiset<Version> all(taken.begin(), taken.end());
  all.insert(skipped.begin(), skipped.end());
  ASSERT_EQ(all.size(), kVersions);
  EXPECT_EQ(std::set<Version>(all.begin(), all.end()).size(), kVersions);
  EXPECT_FALSE(gate.pending());
}

}  // namespace
}  // namespace bascule
