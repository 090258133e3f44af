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
    opened_[static_cast<std::size_t>(found - served_.begin())] = std::move(opened);
    return absl::OkStatus();
  }
  if (opened_.size() >= most_)
    return absl::ResourceExhaustedError(cat(opened_.size(),
                                            " adapters are loaded, or still used by requests, and this engine holds ",
                                            most_, " (--max-adapters); unload one, and try again"));
  opened_.push_back(std::move(opened));
  served_.push_back({.id = id});
  return absl::OkStatus();
}

void ServedAdapters::remove(AdapterId id) {
  const auto found = std::ranges::find(served_, id, &ServedAdapter::id);
  if (found == served_.end()) return;
  opened_.erase(opened_.begin() + (found - served_.begin()));
  served_.erase(found);
}

void ServedAdapters::commit() {
  for (std::size_t i = 0; i < opened_.size(); ++i) served_[i].served = opened_[i]->commit(served_[i].served);
}

bool ServedAdapters::pending() const {
  return std::ranges::any_of(opened_, [](const auto& adapter) { return adapter->pending(); });
}

const OpenedAdapter& ServedAdapters::find(AdapterId id) const {
  const auto found = std::ranges::find(served_, id, &ServedAdapter::id);
  return *opened_[static_cast<std::size_t>(found - served_.begin())];
}

}  // namespace bascule::ref
