// New tokens on their way from the engine's thread to the server's, for streamed answers.
//
// Nothing waits here. If a client reads slowly, its own tokens pile up, at most as many as its request may generate,
// until its connection's deadline ends it.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/schedule/sequence.h>

namespace bascule::ref {

// Any thread.
class TokenFeed final : public TokenSink {
 public:
  // `ready` is called by put(), once for all tokens that come before the next take().
  explicit TokenFeed(std::function<void()> ready) : ready_(std::move(ready)) {}

  void put(NewToken token) override {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = tokens_.empty();
      tokens_.push_back(std::move(token));
    }
    if (first) ready_();
  }

  // Returns the oldest tokens, at most `most`.
  std::vector<NewToken> take(std::size_t most) {
    std::vector<NewToken> taken;
    const std::lock_guard lock(mutex_);
    while (!tokens_.empty() && taken.size() < most) {
      taken.push_back(std::move(tokens_.front()));
      tokens_.pop_front();
    }
    return taken;
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return tokens_.empty();
  }

 private:
  const std::function<void()> ready_;
  mutable std::mutex mutex_;
  std::deque<NewToken> tokens_;
};

}  // namespace bascule::ref
