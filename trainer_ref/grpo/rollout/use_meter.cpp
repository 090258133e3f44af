#include <bascule/trainer_ref/grpo/rollout/use_meter.h>

#include <algorithm>
#include <utility>

namespace bascule::ref {

void UseMeter::begin(std::size_t engine, Time now) {
  go_on(now);
  ++engines_[engine].under_way;
}

void UseMeter::end(std::size_t engine, Time now, std::int64_t tokens) {
  go_on(now);
  --engines_[engine].under_way;
  engines_[engine].use.tokens += tokens;
}

void UseMeter::set_up(std::size_t engine, Time now, bool up) {
  go_on(now);
  engines_[engine].up = up;
}

std::vector<EngineUse> UseMeter::use(Time now) {
  go_on(now);
  std::vector<EngineUse> all;
  for (const Engine& engine : engines_) all.push_back(engine.use);
  return all;
}

// Adds the time since the last event to the state since then.
void UseMeter::go_on(Time now) {
  const double seconds = std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  const bool any = std::any_of(engines_.begin(), engines_.end(), [](const Engine& each) { return each.under_way > 0; });
  for (Engine& engine : engines_) {
    if (engine.under_way > 0)
      engine.use.busy_seconds += seconds;
    else if (any && engine.up)
      engine.use.idle_seconds += seconds;
  }
}

}  // namespace bascule::ref
