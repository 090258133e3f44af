// HandlerScope: the handlers of one receiver on the I/O thread, which all receivers of the process share.
//
// Threads: the I/O thread, unless stated otherwise.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include <bascule/transport/caught.h>

namespace bascule::inline v0 {

// Copies share their state.
class HandlerScope {
 public:
  // An exception ends only the handler that throws it, and is passed to `failed` as a Status.
  explicit HandlerScope(std::function<void(const absl::Status&)> failed)
      : state_(std::make_shared<State>(State{.open = true, .failed = std::move(failed)})) {}

  // Returns a handler that does what `handler` does until close() is called, and nothing after that. Any thread.
  template <typename Handler>
  auto operator()(Handler handler) const {
    return [state = state_, handler = std::move(handler)](auto&&... arguments) mutable {
      if (!state->open) return;
      const absl::Status ran = caught([&] { handler(std::forward<decltype(arguments)>(arguments)...); });
      if (!ran.ok() && state->open) state->failed(ran);
    };
  }
  void close() { state_->open = false; }

 private:
  struct State {
    bool open;
    std::function<void(const absl::Status&)> failed;
  };
  std::shared_ptr<State> state_;
};

}  // namespace bascule::inline v0
