#include <bascule/trainer_ref/engine/compute/served_adapters.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {

absl::Status ServedAdapters::set(AdapterId id, std::unique_ptr<AdapterWeights> weights) {
  // Only TorchAdapterLoader opens adapters for this runner.
  std::unique_ptr<OpenedAdapter> opened(static_cast<OpenedAdapter*>(weights.release()));
  const auto found = std::ranges::find(served_, id, &ServedAdapter::id);
  if (found != served_.end()) {
    Loaded& loaded = loaded_[static_cast<std::size_t>(found - served_.begin())];
    loaded.next = std::move(opened);
    loaded.refused = absl::OkStatus();
    ++loaded.sources;
    return absl::OkStatus();
  }
  if (loaded_.size() >= most_)
    return absl::ResourceExhaustedError(cat(loaded_.size(),
                                            " adapters are loaded, or still used by requests, and this engine holds ",
                                            most_, " (--max-adapters); unload one, and try again"));
  loaded_.push_back({.current = std::move(opened)});
  served_.push_back({.id = id});
  return absl::OkStatus();
}

void ServedAdapters::remove(AdapterId id) {
  const auto found = std::ranges::find(served_, id, &ServedAdapter::id);
  if (found == served_.end()) return;
  loaded_.erase(loaded_.begin() + (found - served_.begin()));
  served_.erase(found);
}

void ServedAdapters::commit() {
  for (std::size_t i = 0; i < loaded_.size(); ++i) served_[i].served = commit(loaded_[i]);
}

// A replacement of which no sender is there yet may still come; what is served goes on until then.
Served ServedAdapters::commit(Loaded& loaded) {
  if (loaded.next) {
    Served next = loaded.next->commit(loaded.sources - 1);
    if (next.ready) {
      loaded.current = std::move(loaded.next);
      next.changed = true;
      next.source = loaded.served = loaded.sources;
      return next;
    }
    if (!next.error.ok() && !absl::IsUnavailable(next.error)) {
      loaded.refused = next.error;
      loaded.next.reset();
    }
  }
  Served served = loaded.current->commit(loaded.served - 1);
  served.source = loaded.served;
  if (loaded.refused.ok()) return served;
  served.error = loaded.refused;
  served.refused = loaded.sources;
  return served;
}

bool ServedAdapters::pending() const {
  return std::ranges::any_of(loaded_, [](const Loaded& loaded) {
    return loaded.current->pending() || (loaded.next && loaded.next->pending());
  });
}

const OpenedAdapter& ServedAdapters::find(AdapterId id) const {
  const auto found = std::ranges::find(served_, id, &ServedAdapter::id);
  return *loaded_[static_cast<std::size_t>(found - served_.begin())].current;
}

}  // namespace bascule::ref
