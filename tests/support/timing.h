// How long tests wait. No test asserts a maximum time. These are the limits after which a test gives up, and the
// silences that it makes on purpose; all are longer if a sanitizer slows everything down.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "absl/time/time.h"

namespace bascule::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowdown = 4;
#else
inline constexpr int kSlowdown = 1;
#endif

// An environment variable with a factor for this process and its children, for tests of what is slow by nature.
inline constexpr char kSlownessVariable[] = "BASCULE_TEST_SLOWNESS";
inline int slowness() {
  const char* const slow = std::getenv(kSlownessVariable);
  return slow != nullptr ? std::max(1, std::atoi(slow)) : 1;
}

// Long enough for anything that will happen at all.
inline absl::Duration patience() { return absl::Seconds(20 * kSlowdown); }

// The silence after which a stopped peer is given up. Healthy peers, even on a busy machine, answer sooner.
inline absl::Duration silence() { return absl::Milliseconds(500 * kSlowdown * slowness()); }

}  // namespace bascule::test
