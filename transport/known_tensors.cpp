#include <bascule/transport/known_tensors.h>

#include <algorithm>
#include <utility>

namespace bascule::inline v0 {

SharedSpecs KnownTensors::find(std::span<const std::uint8_t> encoded) const {
  for (const Entry& entry : entries_)
    if (std::ranges::equal(entry.encoded, encoded)) return entry.specs;
  return nullptr;
}

void KnownTensors::add(std::span<const std::uint8_t> encoded, SharedSpecs specs) {
  if (entries_.size() == kMost) entries_.pop_front();
  entries_.push_back({.encoded = {encoded.begin(), encoded.end()}, .specs = std::move(specs)});
}

}  // namespace bascule::inline v0
