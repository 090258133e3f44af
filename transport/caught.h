// What a thread of ours does if memory runs out, or if code that it calls throws. No exception may leave such a thread:
// it would end the user's process. There are two ways to handle one:
//
//   caught(work)        one attempt; an exception becomes a Status. For work that belongs to one peer, whose session
//                       then ends, and for work that may be left out, such as a line of a log.
//   until_done(work)    tries again until there is memory. For work that must not be lost. `work` allocates before it
//                       changes anything, or does the same when it is done again from the start.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// RESOURCE_EXHAUSTED; copying it needs no memory.
const absl::Status& out_of_memory();
// The Status of the exception that is being handled: out_of_memory(), or INTERNAL with its text.
absl::Status status_of_exception() noexcept;

// Returns the user's `callback`, such as a log, without its exceptions: it is called between steps that belong
// together.
template <typename... Arguments>
std::function<void(Arguments...)> unfailing(std::function<void(Arguments...)> callback) {
  if (!callback) return callback;
  return [callback = std::move(callback)](Arguments... arguments) {
    try {
      callback(arguments...);
    } catch (...) {  // NOLINT(bugprone-empty-catch): it has no one to tell
    }
  };
}

// Returns the result of `work`, or OK if it has none.
template <typename Work>
absl::Status caught(Work&& work) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(work())>) {
      work();
      return absl::OkStatus();
    } else {
      return work();
    }
  } catch (...) {
    return status_of_exception();
  }
}

// Blocks while there is no memory. Returns OK once `work` is done. Any other exception is a defect, and comes back as
// INTERNAL: the same attempt would only fail again.
template <typename Work>
absl::Status until_done(Work&& work) noexcept {
  for (std::chrono::microseconds pause{100};; pause = std::min(2 * pause, std::chrono::microseconds(10'000))) {
    absl::Status done = caught([&] { work(); });
    if (!absl::IsResourceExhausted(done)) return done;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace bascule::inline v0
