// Checks whether a scenario fits into memory, and shows the arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace bascule::bench {

struct Need {
  std::string_view what;
  std::uint64_t count = 1, bytes = 0;  // each
};

// Returns OK if the needs leave a sixteenth of `available_bytes` free, else RESOURCE_EXHAUSTED with a text such as "1
// model of 4.0 GiB + 2 slots of 4.0 GiB = 12.0 GiB; 10.0 GiB are available, of which 640.0 MiB are left alone".
absl::Status check_fits(const std::vector<Need>& needs, std::uint64_t available_bytes);

std::string shown_bytes(double bytes);      // "1.0 GiB"; always in powers of 1024
std::string shown_seconds(double seconds);  // "1.23 s", "45.6 ms", "789 us"

}  // namespace bascule::bench
