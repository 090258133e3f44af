// Starts threads where a limit may forbid it, such as one on pids or address space. At the limit std::thread throws,
// and an uncaught exception would end the user's process.
#pragma once

#include <exception>
#include <string_view>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// Returns RESOURCE_EXHAUSTED. The text names what was being started (`whose`), the system's error, and each limit that
// is set for this process.
absl::Status no_threads(std::string_view whose, const std::exception& error);

// Calls `start`, which makes objects that start threads, and returns its Status or StatusOr. If it throws, for lack of
// threads, memory or descriptors, returns no_threads(), whose text names `whose`.
template <typename Start>
auto starting_threads(std::string_view whose, Start start) -> decltype(start()) {
  try {
    return start();
  } catch (const std::exception& error) {
    return no_threads(whose, error);
  }
}

}  // namespace bascule::inline v0
