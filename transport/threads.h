// Starts threads where a limit may forbid it, such as one on pids or address space. At the limit std::thread throws,
// and an uncaught exception would end the user's process.
#pragma once

#include <exception>
#include <string_view>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// Returns an error that names what was being started (`whose`) and the system's error. If a thread could not be started
// (RESOURCE_EXHAUSTED), it lists each limit on threads that is set for this process; for another error of the system,
// such as EMFILE, it is errno_status()'s.
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
