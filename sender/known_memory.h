// KnownMemory: that tensors which are said to lie on a device do, so that no kernel is given an address that it cannot
// use. The driver is asked for addresses that are new: of ten thousand tensors that stay where they are, for none.
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
  // `views` as check_memory() wants them; `plan_number` changes with their shapes and strides. Addresses count as known
  // once all of a call's are right.
  absl::Status check(int device, std::span<const TensorView> views, std::uint64_t plan_number);

 private:
  struct Known {
    const std::byte *data = nullptr, *first = nullptr, *last = nullptr;
  };
  std::uint64_t plan_number_ = 0;
  std::vector<Known> known_;  // by view
};

}  // namespace bascule::inline v0
