// An object whose threads call the user may be destroyed inside such a call, on a thread that it would have to join.
// Another thread then ends it, and the user's callbacks, whose captures may be gone, are not called again.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace bascule::inline v0 {

using Silence = std::shared_ptr<std::atomic<bool>>;  // true: callbacks are not called any longer

// Returns `callback`, which does nothing once `silence` is true.
template <typename... Arguments>
std::function<void(Arguments...)> unless_silent(std::function<void(Arguments...)> callback, Silence silence) {
  if (!callback) return callback;
  return [callback = std::move(callback), silence = std::move(silence)](Arguments... arguments) {
    if (!silence->load(std::memory_order_relaxed)) callback(arguments...);
  };
}

// Runs `end` on another thread, and returns at once. If no thread can be started, the object is never ended.
template <typename End>
void end_elsewhere(End end) {
  try {
    std::thread(std::move(end)).detach();
  } catch (const std::system_error&) {  // its memory stays until the process ends
    return;
  }
}

}  // namespace bascule::inline v0
