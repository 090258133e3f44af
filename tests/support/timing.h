// How long tests wait. Nothing asserts a maximum time: these are the limits after which a test gives up, and the
// silences that it makes on purpose, longer where a sanitizer makes everything slower.
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

// Of this process and those that it starts, where what is tested takes its time by itself.
inline constexpr char kSlownessVariable[] = "BASCULE_TEST_SLOWNESS";
inline int slowness() {
  const char* const slow = std::getenv(kSlownessVariable);
  return slow != nullptr ? std::max(1, std::atoi(slow)) : 1;
}

// Long enough for anything that happens at all.
inline absl::Duration patience() { return absl::Seconds(20 * kSlowdown); }

// A silence after which a stopped peer is given up; healthy ones on a busy machine are not that slow.
inline absl::Duration silence() { return absl::Milliseconds(500 * kSlowdown * slowness()); }

}  // namespace bascule::test
