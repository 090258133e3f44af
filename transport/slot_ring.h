// SlotRing: keeps track of which slot may be written, which holds the newest version, and which holders still read
// which slot. Pure bookkeeping.
//
//   free ──begin──▶ writing ──seal───▶ sealed(v) ──publish──▶ published(v) ──next publish──▶ free
//    │                 └──────abort──────┘──▶ free
//    └──retire──▶ retired ──its last lease ends──▶ gone
//
// A slot is written only when it is free *and* has no leases, except by begin_single_copy(), where every reader yields.
// Leases outlive membership, since an evicted worker may still read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <bascule/transport/version.h>

namespace bascule::inline v0 {

using Holder = std::uint64_t;  // a receiver's instance number; over TCP, its membership number

class SlotRing {
 public:
  enum class State { kFree, kWriting, kSealed, kPublished, kRetired };

  explicit SlotRing(Epoch epoch) : epoch_(epoch) {}

  SlotId add();                                    // adds a free slot; indices are never reused
  SlotId next() const { return {epoch_, next_}; }  // the slot that add() will return

  // Takes a free slot for writing. Returns nullopt while holders have leases on all free slots, or while a slot is
  // being written or is sealed.
  std::optional<SlotId> begin();
  void begin(SlotId slot);  // takes this slot, which must be free and without leases
  // For a single copy: takes the one slot if all its holders are in `yielding`. abort() brings its published version
  // back.
  std::optional<SlotId> begin_single_copy(std::span<const Holder> yielding);
  void seal(SlotId slot, Version version);
  void publish(SlotId slot);  // the slot published before becomes free
  void abort(SlotId slot);
  void spoil(SlotId slot);  // like abort(), but the version that begin_single_copy() took is not restored

  void lease(SlotId slot, Holder holder);
  void release(SlotId slot, Holder holder);  // does nothing without a lease
  void release_all(Holder holder);
  void keep_only(Holder holder,
                 std::span<const SlotId> held);  // drops this holder's leases on all other slots

  // Call it if begin() finds no slot. Holders in `unwilling` will not release their slots by themselves: if every free
  // slot has such a holder, returns the slot to retire, otherwise nullopt. A slot that only holders in `uncounted` read
  // comes first; any other is not retired while `spares` such slots are retired and still read.
  std::optional<SlotId> retirable(std::span<const Holder> unwilling, int spares,
                                  const std::set<Holder>& uncounted = {}) const;
  std::vector<SlotId> retired_beside(const std::set<Holder>& uncounted) const;  // retired, and read by other holders
  void retire(SlotId slot);                                                     // the slot must be free
  std::vector<SlotId> gone() const;                                             // retired slots without leases
  void drop(SlotId slot) { slots_.erase(slot.index); }                          // one of gone(): the ring forgets it

  std::optional<SlotId> newest() const;  // the published slot
  Version version(SlotId slot) const;
  State state(SlotId slot) const;
  std::vector<SlotId> slots() const;    // all except retired ones
  std::vector<SlotId> retired() const;  // retired slots that are still read
  std::vector<Holder> holders_of(SlotId slot) const;
  bool holds(SlotId slot, Holder holder) const;  // false for a slot that is gone
  // The holders that begin() waits for: they have leases on free or retired slots.
  std::vector<Holder> holders() const;

 private:
  struct Slot {
    State state = State::kFree;
    Version version = 0;
    std::optional<Version> before;  // the published version that abort() restores; see begin_single_copy()
    std::set<Holder> leases;
    bool read_beside(const std::set<Holder>& uncounted) const;  // by another holder than these
  };
  Slot& at(SlotId slot) { return slots_.at(slot.index); }
  const Slot& at(SlotId slot) const { return slots_.at(slot.index); }
  bool any(State state) const;

  Epoch epoch_;
  std::uint32_t next_ = 0;
  std::map<std::uint32_t, Slot> slots_;  // by index
};

}  // namespace bascule::inline v0
