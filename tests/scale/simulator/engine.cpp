#include "simulator/engine.h"

#include <utility>

namespace bascule::simulator {

Engine::Answer Engine::hear(const Message& message, Time now) {
  Answer answer;
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    incoming_ = Lease{.version = prepare->version, .slot = prepare->slot, .number = prepare->lease};
    answer.say.emplace_back(Ready{.version = prepare->version});
  } else if (const auto* sealed = std::get_if<Sealed>(&message)) {
    answer.say.emplace_back(Prepared{.version = sealed->version});
    if (sealed->decided) decide(sealed->version, now, answer);
  } else if (const auto* decided = std::get_if<Decided>(&message)) {
    decide(decided->version, now, answer);
  } else if (std::holds_alternative<Abort>(message)) {
    if (incoming_) answer.say.emplace_back(Released{.slot = incoming_->slot, .lease = incoming_->number});
    incoming_.reset();
  }
  return answer;
}

void Engine::decide(Version version, Time now, Answer& answer) {
  if (!incoming_ || incoming_->version != version) return;
  decided_at_ = now;
  answer.flips_at = next_boundary(now);
}

std::vector<Message> Engine::flip(Time now) {
  waited_ = now - decided_at_;
  std::vector<Message> said;
  said.emplace_back(
      Ack{.version = incoming_->version, .stall_seconds = 0, .seconds = seconds_between(decided_at_, now)});
  if (serving_ && serving_->slot != incoming_->slot)
    said.emplace_back(Released{.slot = serving_->slot, .lease = serving_->number});
  serving_ = std::exchange(incoming_, std::nullopt);
  return said;
}

Time Engine::next_boundary(Time now) const {
  if (step_ <= Duration::zero()) return now;
  if (now <= phase_) return phase_;
  const Duration::rep steps = (now - phase_ + step_ - Duration(1)) / step_;
  return phase_ + steps * step_;
}

}  // namespace bascule::simulator
