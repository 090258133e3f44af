// Rounds, and how a test takes them from phase to phase.
#pragma once

#include <bascule/sender/fleet/round.h>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/status.h>

namespace bascule::test {

using Action = Round::Action;
using Phase = Round::Phase;

inline constexpr WorkerId kA = 1, kB = 2, kStranger = 9;

inline constexpr Round::Rules kDelivers = {
    .single_copy = false, .delivers = true, .behind = false, .each = false, .persists = false};
inline constexpr Round::Rules kDeliversBehind = {
    .single_copy = false, .delivers = true, .behind = true, .each = false, .persists = false};

inline Round round_of(std::vector<Round::WorkerIdentity> workers = {{kA, "a"}, {kB, "b"}},
                      Round::Rules rules = kDelivers) {
  return Round({.version = 7, .slot = {3, 1}, .bytes = 100, .digest = std::nullopt}, std::move(workers), rules);
}

// Each call is a second later.
inline Action next(Round& round) {
  static Clock::time_point now{};
  return round.next(now += std::chrono::seconds(1));
}

// A decision that the scheme accepts, with all workers told.
inline void decide(Round& round) {
  EXPECT_EQ(next(round), Action::kDecide);
  EXPECT_EQ(next(round), Action::kNone) << "the scheme has not published it";
  round.decided(absl::OkStatus());
}

inline std::string text(const absl::Status& status) { return std::string(message_of(status)); }

// A round of a and b, taken to the beginning of `phase`, with nothing more due.
inline Round round_in(Phase phase) {
  Round round = round_of();
  EXPECT_EQ(next(round), Action::kNone);
  if (phase == Phase::kWriting) return round;
  round.sealed(Digest{.low = 1, .high = 2});
  if (phase == Phase::kSealed) return round;
  round.ready(kA), round.ready(kB);
  EXPECT_EQ(next(round), Action::kDeliver);
  if (phase == Phase::kDelivering) return round;
  round.delivered(absl::OkStatus());
  EXPECT_EQ(next(round), Action::kAnnounce);
  if (phase == Phase::kPreparing) return round;
  round.prepared(kA), round.prepared(kB);
  decide(round);
  EXPECT_EQ(next(round), Action::kDecided);
  if (phase == Phase::kCommitting) return round;
  round.acked(kA, 0.5, 0.25), round.acked(kB, 0.75, 0.125);
  EXPECT_EQ(next(round), Action::kSettle);
  return round;
}

}  // namespace bascule::test
