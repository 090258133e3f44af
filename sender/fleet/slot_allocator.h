// SlotAllocator: keeps track of the sender's slots, with their memory, digests and holders, and of which slot the
// public thread may write. Pure bookkeeping over a SlotRing.
//
//              take() / take_ahead()          announced()
//   nothing ──────────────────────▶ granted ─────────────▶ written for a version, which is then published or aborted
//      ▲                              │
//      └───────── give_back() ────────┘
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bascule/sender/fleet/events.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/slot_ring.h>

namespace bascule::inline v0 {

class SlotAllocator {
 public:
  using NameOf = std::function<std::string(Holder)>;  // for texts

  SlotAllocator(const Endpoint& endpoint, Epoch epoch, bool fresh_slots, NameOf name_of)
      : endpoint_(endpoint), fresh_slots_(fresh_slots), ring_(epoch), name_of_(std::move(name_of)) {}

  void open(const std::vector<OfferedSlot>& slots);
  bool is_open() const { return open_; }
  bool single_copy() const { return endpoint_.single_copy(); }

  // ---- which slot is written ----

  bool granted() const { return granted_; }
  // Takes a free slot for the next version to all; the public thread can then write it without asking. Returns nullopt
  // if a slot would have to be made, with a single copy, or if a slot is already granted.
  std::optional<SlotId> take_ahead();
  // For the waiting public thread: returns the slot that was taken ahead, a free one, or a spare one. `unwilling` are
  // the holders that will not release a slot by themselves.
  std::optional<Grant> take(std::span<const Holder> unwilling);
  // For a single copy: returns the one slot, if all its holders are in `yielding`.
  std::optional<Grant> take_single_copy(std::span<const Holder> yielding);
  Grant replace(const Grant& grant);  // returns it with a new slot
  void give_back(const Grant& grant);
  void add_memory(SlotId slot, const OfferedSlot& memory) { memory_[slot.index] = memory; }  // if the slot is new
  void announced();                                                                          // the granted slot
  std::vector<SlotId> gone() const { return ring_.gone(); }  // slots that left the ring and have no readers
  void drop(SlotId slot);                                    // one of gone()

  void seal(SlotId slot, Version version) { ring_.seal(slot, version); }
  void publish(const Publication& publication);
  void abort(SlotId slot, bool torn) { torn ? ring_.spoil(slot) : ring_.abort(slot); }

  // ---- leases ----

  void lease(SlotId slot, Holder holder) { ring_.lease(slot, holder); }
  void release(SlotId slot, Holder holder) { ring_.release(slot, holder); }
  void end_leases(Holder holder);
  void keep_only(Holder holder, const std::vector<HeldSlot>& held);  // the holder is welcomed, and holds only these
  void left(Holder holder);                                          // its membership ended; its leases continue
  const std::set<Holder>& left_behind() const { return left_; }      // holders that are not members
  // One of left_behind(), whose process has ended: other processes keep its leases. No one can make it release them, so
  // they do not count towards spares=, and its slots' memory is not ours to free.
  void orphaned(Holder holder);
  bool is_orphaned(Holder holder) const { return orphaned_.contains(holder); }
  bool holds(SlotId slot, Holder holder) const { return ring_.holds(slot, holder); }
  std::vector<Holder> holders_of(SlotId slot) const { return ring_.holders_of(slot); }
  std::vector<std::uint32_t> leases_of(Holder holder) const;

  // ---- state ----

  std::optional<Publication> newest() const;  // the newest published version
  std::vector<SlotId> slots() const { return ring_.slots(); }
  std::vector<OfferedSlot> offered() const;  // the members of slots() that have memory
  const OfferedSlot& memory(SlotId slot) const { return memory_.at(slot.index); }
  bool on_device() const;
  std::optional<SlotId> ahead() const { return ahead_; }
  SlotRing::State state(SlotId slot) const { return ring_.state(slot); }
  Version version(SlotId slot) const { return ring_.version(slot); }
  std::optional<Digest> digest(SlotId slot) const;
  std::vector<SlotId> all() const;  // retired ones last

  // ---- texts ----

  std::string readers() const { return readers_on(all()); }    // who keeps slots from being written: "a (slot 0), …"
  std::optional<int> spares_used() const;                      // nullopt unless all spares are used
  const std::string& spare_warning() const { return spare_; }  // the warning that the granted slot is a spare

 private:
  std::optional<Grant> make_slot(bool is_spare);
  std::string readers_on(const std::vector<SlotId>& slots) const;
  std::string spare_made(const Grant& grant) const;
  // With spares=0 no slot may be made, so every lease counts.
  const std::set<Holder>& uncounted() const {
    static const std::set<Holder> none;
    return spares() > 0 ? orphaned_ : none;
  }
  int spares() const { return endpoint_.spares.value_or(on_device() ? 1 : 2); }

  const Endpoint& endpoint_;
  const bool fresh_slots_;  // each version gets a new slot
  SlotRing ring_;
  const NameOf name_of_;
  bool open_ = false;
  std::map<std::uint32_t, OfferedSlot> memory_;             // by index
  std::map<std::uint32_t, std::optional<Digest>> digests_;  // of published slots, by index
  std::set<Holder> left_, orphaned_;
  bool granted_ = false;         // a slot is granted, perhaps ahead, and its version is not announced yet
  std::optional<SlotId> ahead_;  // granted ahead; the public thread has not reported that it uses it
  std::string spare_;            // the current grant's warning
};

}  // namespace bascule::inline v0
