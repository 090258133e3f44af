#include "simulator/wire.h"

#include <algorithm>

namespace bascule::simulator {

Wire::Wire(Agenda& agenda, const WireRules& rules, int workers, std::uint64_t seed, Hear worker_hears,
           Hear sender_hears)
    : agenda_(agenda),
      rules_(rules),
      worker_hears_(std::move(worker_hears)),
      sender_hears_(std::move(sender_hears)),
      random_(seed, 1),
      last_to_worker_(static_cast<std::size_t>(workers) + 1),
      last_to_sender_(last_to_worker_) {}

Duration Wire::delay() { return duration_of(rules_.delay_seconds + random_.uniform() * rules_.jitter_seconds); }

void Wire::to_worker(WorkerId id, Message message) {
  free_ = std::max(free_, agenda_.now()) + duration_of(rules_.message_seconds);
  Time& last = last_to_worker_[id];
  last = std::max(last, free_ + delay());
  agenda_.at(last, [this, id, message = std::move(message)] { worker_hears_(id, message); });
}

void Wire::to_sender(WorkerId id, Message message) {
  Time& last = last_to_sender_[id];
  last = std::max(last, agenda_.now() + delay());
  agenda_.at(last, [this, id, message = std::move(message)] {
    inbox_.emplace_back(id, message);
    if (!std::exchange(serving_, true)) serve();
  });
}

// Handles the next message once the thread has finished earlier work. The messages that it causes follow it.
void Wire::serve() {
  free_ = std::max(free_, agenda_.now()) + duration_of(rules_.message_seconds);
  agenda_.at(free_, [this] {
    if (!inbox_.empty()) {
      const auto [id, message] = std::move(inbox_.front());
      inbox_.pop_front();
      sender_hears_(id, message);
    }
    serving_ = !inbox_.empty();
    if (serving_) serve();
  });
}

void Wire::read_queued() {
  for (const auto& [id, message] : std::exchange(inbox_, {})) sender_hears_(id, message);
}

}  // namespace bascule::simulator
