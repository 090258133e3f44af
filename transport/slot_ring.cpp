#include "transport/slot_ring.h"

#include <algorithm>

namespace bascule {

SlotRing::SlotRing(Epoch epoch, int slots) : epoch_(epoch), slots_(static_cast<std::size_t>(slots)) {}

SlotRing::Slot& SlotRing::at(SlotId slot) { return slots_.at(slot.index); }
const SlotRing::Slot& SlotRing::at(SlotId slot) const { return slots_.at(slot.index); }

std::optional<SlotId> SlotRing::begin() {
  const auto under_way = [](const Slot& slot) { return slot.state == State::kWriting || slot.state == State::kStaged; };
  if (std::any_of(slots_.begin(), slots_.end(), under_way)) return std::nullopt;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state != State::kFree || !slot.leases.empty()) continue;
    slot.state = State::kWriting;
    slot.version = 0;
    return SlotId{epoch_, i};
  }
  return std::nullopt;
}

void SlotRing::stage(SlotId slot, Version version) {
  at(slot).state = State::kStaged;
  at(slot).version = version;
}

void SlotRing::publish(SlotId slot) {
  for (Slot& other : slots_)
    if (other.state == State::kPublished) other.state = State::kFree;
  at(slot).state = State::kPublished;
}

void SlotRing::abort(SlotId slot) { at(slot).state = State::kFree; }

void SlotRing::lease(SlotId slot, Holder holder) { at(slot).leases.insert(holder); }

void SlotRing::release(SlotId slot, Holder holder) {
  if (slot.epoch == epoch_ && slot.index < slots_.size()) at(slot).leases.erase(holder);
}

void SlotRing::release_all(Holder holder) {
  for (Slot& slot : slots_) slot.leases.erase(holder);
}

void SlotRing::keep_only(Holder holder, std::span<const SlotId> held) {
  for (std::uint32_t i = 0; i < slots_.size(); ++i)
    if (std::find(held.begin(), held.end(), SlotId{epoch_, i}) == held.end()) slots_[i].leases.erase(holder);
}

std::optional<SlotId> SlotRing::newest() const {
  for (std::uint32_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].state == State::kPublished) return SlotId{epoch_, i};
  return std::nullopt;
}

Version SlotRing::version(SlotId slot) const { return at(slot).version; }
SlotRing::State SlotRing::state(SlotId slot) const { return at(slot).state; }

std::vector<Holder> SlotRing::holders() const {
  std::set<Holder> all;
  for (const Slot& slot : slots_)
    if (slot.state == State::kFree) all.insert(slot.leases.begin(), slot.leases.end());
  return {all.begin(), all.end()};
}

}  // namespace bascule
