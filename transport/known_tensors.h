// KnownTensors: the tensor lists received most recently. All workers of a fleet expect the same tensors, so a list that
// arrives again, byte for byte, is not decoded again, and all its users share one copy.
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
  // Returns the decoded list, or null if this list is not known. `encoded` is the whole list as received.
  SharedSpecs find(std::span<const std::uint8_t> encoded) const;
  void add(std::span<const std::uint8_t> encoded, SharedSpecs specs);

 private:
  static constexpr std::size_t kMost = 2;  // the list of an engine that reads in place, and of one that copies
  struct Entry {
    std::vector<std::uint8_t> encoded;
    SharedSpecs specs;
  };
  std::deque<Entry> entries_;  // the newest last
};

}  // namespace bascule::inline v0
