// KnownTensors: the lists of tensors that came last. A fleet's workers all expect the same ones: a list that comes
// again, byte for byte, is not read again, and all holders share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

using SharedSpecs = std::shared_ptr<const std::vector<TensorSpec>>;

// One thread at a time.
class KnownTensors {
 public:
  // Null: this one did not come before. `encoded`: as it came, whole.
  SharedSpecs find(std::span<const std::uint8_t> encoded) const;
  void add(std::span<const std::uint8_t> encoded, SharedSpecs specs);

 private:
  static constexpr std::size_t kMost = 2;  // an engine's own, and that of a copy beside it
  struct Entry {
    std::vector<std::uint8_t> encoded;
    SharedSpecs specs;
  };
  std::deque<Entry> entries_;  // the newest last
};

}  // namespace bascule::inline v0
