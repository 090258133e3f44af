// SlotSet: the memory of a sender's slots, by index. Loans share it: it stays mapped until they and the sender are
// gone.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <bascule/transport/layout.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/tensor.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

struct SlotSet {
  SharedLayout layout;
  std::map<std::uint32_t, SlotMemory> memory;

  // Returns the tensors of one slot for writing, in the layout's order. They live as long as the set.
  std::vector<MutableTensorView> tensors(SlotId slot) {
    std::vector<MutableTensorView> views;
    SlotMemory& of_slot = memory.at(slot.index);
    std::byte* const base = of_slot.writable().data();
    for (const Placement& tensor : layout->tensors())
      views.push_back({.name = tensor.spec.name,
                       .dtype = tensor.spec.dtype,
                       .shape = tensor.spec.shape,
                       .data = base + tensor.offset,
                       .device = of_slot.device});
    return views;
  }
};

}  // namespace bascule::inline v0
