#include <bascule/schemes/relay/known_engines.h>

#include <utility>

namespace bascule::inline v0::relay {

KnownEngines::KnownEngines(const RelayMemory& here, std::function<void()> met) : here_(here), met_(std::move(met)) {
  mapper_.submit(own_thread_of_devices);
}

void KnownEngines::meet(RelayMessage message, std::vector<UniqueFd> descriptors) {
  struct Shown {
    RelayMessage message;
    std::vector<UniqueFd> descriptors;
  };
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = ++introductions_;
  if (auto before = std::exchange(engines_[message.source], {.number = number}).buffers) let_go(std::move(before));
  auto shown = std::make_shared<Shown>(Shown{std::move(message), std::move(descriptors)});
  mapper_.submit([this, shown, number] {
    std::shared_ptr<EngineBuffers> made = EngineBuffers::make(here_, shown->message, std::move(shown->descriptors));
    {
      const std::lock_guard lock(mutex_);
      const auto engine = engines_.find(shown->message.source);
      if (engine == engines_.end() || engine->second.number != number) return;  // forgotten meanwhile
      engine->second.buffers = std::move(made);
    }
    met_();
  });
}

void KnownEngines::forget(SourceId engine) {
  const std::lock_guard lock(mutex_);
  if (auto gone = engines_.extract(engine)) let_go(std::move(gone.mapped().buffers));
}

void KnownEngines::forget_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, engine] : std::exchange(engines_, {})) let_go(std::move(engine.buffers));
}

// On the mapper's thread: unmapping waits until the device has finished its reads.
void KnownEngines::let_go(std::shared_ptr<EngineBuffers> engine) {
  mapper_.submit([engine = std::move(engine)] {});
}

std::optional<std::shared_ptr<EngineBuffers>> KnownEngines::find(SourceId engine) const {
  const std::lock_guard lock(mutex_);
  const auto found = engines_.find(engine);
  return found == engines_.end() ? std::nullopt : std::optional(found->second.buffers);
}

}  // namespace bascule::inline v0::relay
