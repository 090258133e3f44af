// SlotRing: which slot may be written, which holds the newest version, and who still reads what. Pure
// bookkeeping.
//
//   free ──begin──▶ writing ──stage──▶ staged(v) ──publish──▶ published(v) ──next publish──▶ free
//                      └──────abort──────┘──▶ free
//
// A slot is written only when it is free *and* nobody holds a lease on it. Leases outlive membership: whoever
// was evicted may still be reading.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "transport/version.h"

namespace bascule {

using Holder = std::uint64_t;  // a receiver's instance number

class SlotRing {
 public:
  enum class State { kFree, kWriting, kStaged, kPublished };

  SlotRing(Epoch epoch, int slots);

  // Takes a slot for writing; none while every other slot is held or one is under way already.
  std::optional<SlotId> begin();
  void stage(SlotId slot, Version version);
  void publish(SlotId slot);  // the slot published before becomes free
  void abort(SlotId slot);

  void lease(SlotId slot, Holder holder);
  void release(SlotId slot, Holder holder);  // of a lease that there is not: nothing
  void release_all(Holder holder);
  void keep_only(Holder holder,
                 std::span<const SlotId> held);  // drops this holder's leases on any other slot

  std::optional<SlotId> newest() const;  // the published slot
  Version version(SlotId slot) const;
  State state(SlotId slot) const;
  // Who stands in the way of begin(): holders of leases on free slots.
  std::vector<Holder> holders() const;
  std::size_t size() const { return slots_.size(); }

 private:
  struct Slot {
    State state = State::kFree;
    Version version = 0;
    std::set<Holder> leases;
  };
  Slot& at(SlotId slot);
  const Slot& at(SlotId slot) const;

  Epoch epoch_;
  std::vector<Slot> slots_;  // by index
};

}  // namespace bascule
