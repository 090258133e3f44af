// KnownMemory: checks that tensors really lie on their device, so that no kernel gets an address that it cannot use.
// The driver is asked only about new addresses: for ten thousand tensors that have not moved, about none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/device.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class KnownMemory {
 public:
  // Returns the errors of check_memory(). `plan_number` changes with the shapes and strides of `views`, and
  // `read_number` with their addresses (Packing): if neither changed, nothing is compared. Addresses count as known
  // once all addresses of a call are right.
  absl::Status check(int device, std::span<const TensorView> views, std::uint64_t plan_number,
                     std::uint64_t read_number);

 private:
  struct Known {
    const std::byte *data = nullptr, *first = nullptr, *last = nullptr;
  };
  std::uint64_t plan_number_ = 0, read_number_ = 0;
  std::vector<Known> known_;  // by view
};

}  // namespace bascule::inline v0
