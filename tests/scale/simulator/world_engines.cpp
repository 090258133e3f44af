// World: engines, which join, answer, flip and die.
#include <algorithm>
#include <utility>

#include "simulator/world.h"
#include <bascule/transport/status.h>

namespace bascule::simulator {

std::string World::name_of_engine(Node node) { return cat("engine-", node); }

void World::start_engines() {
  constexpr double kAllJoinWithinSeconds = 10e-3;
  Random random(settings_.seed, 2);
  engines_.reserve(static_cast<std::size_t>(settings_.machine.nodes()));
  for (Node node = 0; node < settings_.machine.nodes(); ++node) {
    const Time phase = agenda_.now() + duration_of(random.uniform() * settings_.step_seconds);
    engines_.push_back({.engine = Engine(duration_of(settings_.step_seconds), phase)});
    if (node == kTrainer) continue;
    Hello hello;
    hello.worker = name_of_engine(node);
    hello.instance = static_cast<std::uint64_t>(node);
    hello.host = cat("host-", settings_.machine.host(node));
    agenda_.after(duration_of(random.uniform() * kAllJoinWithinSeconds),
                  [this, node, hello] { wire_.to_sender(static_cast<WorkerId>(node), hello); });
  }
}

void World::engine_hears(WorkerId id, const Message& message) {
  Simulated& simulated = engines_[id];
  if (!simulated.lives) return;
  if (std::holds_alternative<Welcome>(message)) {
    if (++welcomed_ < settings_.machine.engines) return;
    begin_send();
    return die_sometimes();
  }
  const Engine::Answer answer = simulated.engine.hear(message, agenda_.now());
  for (const Message& said : answer.say) wire_.to_sender(id, said);
  if (!answer.flips_at) return;
  agenda_.at(*answer.flips_at, [this, id] {
    if (!engines_[id].lives) return;
    for (const Message& said : engines_[id].engine.flip(agenda_.now())) wire_.to_sender(id, said);
    outcome_.flip_seconds.push_back(std::chrono::duration<double>(engines_[id].engine.waited()).count());
  });
}

// ---- deaths ----

void World::die_sometimes() {
  const auto next = deaths_.until_next();
  if (!next) return;
  agenda_.after(*next, [this] {
    std::vector<Node> living;
    for (Node node = 1; node < settings_.machine.nodes(); ++node)
      if (lives(node)) living.push_back(node);
    if (living.empty()) return;
    die(living[deaths_.choose(living.size())], deaths_.falls_silent());
    die_sometimes();
  });
}

void World::die(Node node, bool silent) {
  engines_[static_cast<std::size_t>(node)].lives = false;
  ++outcome_.deaths;
  for (Delivery& delivery : deliveries_)
    if (!delivery.answered) delivery.transfer->lose(node);
  const Duration noticed = deaths_.until_noticed(silent, absl::ToDoubleSeconds(endpoint_.suspect_after),
                                                 absl::ToDoubleSeconds(endpoint_.heartbeat));
  agenda_.after(noticed, [this, node] { end_is_noticed(node); });
}

void World::end_is_noticed(Node node) {
  for (std::size_t i = 0; i < deliveries_.size(); ++i)
    if (!deliveries_[i].answered) deliveries_[i].transfer->repair(node);
  agenda_.after(wire_.delay(), [this, node] {
    outcome_.died.insert(name_of_engine(node));
    tell(event::HungUp{static_cast<WorkerId>(node), absl::UnavailableError("the peer is gone")});
  });
}

}  // namespace bascule::simulator
