// Starting threads where there may be no more of them, as under a limit of pids or of address space: std::thread throws
// then, and a library that lets it pass ends its user's process.
#pragma once

#include <exception>
#include <string_view>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// RESOURCE_EXHAUSTED: what was wanted, what the system said, and each limit that is set here, by its name.
absl::Status no_threads(std::string_view whose, const std::exception& error);

// What `start` returns, a Status or StatusOr: it makes objects that start threads. What they throw where no thread,
// memory or descriptor is to be had comes back as no_threads(). `whose`: for that text.
template <typename Start>
auto starting_threads(std::string_view whose, Start start) -> decltype(start()) {
  try {
    return start();
  } catch (const std::exception& error) {
    return no_threads(whose, error);
  }
}

}  // namespace bascule::inline v0
