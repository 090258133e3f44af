#include <bascule/transport/slot_ring.h>

#include <algorithm>
#include <utility>

namespace bascule::inline v0 {

SlotId SlotRing::add() {
  slots_.emplace(next_, Slot{});
  return {epoch_, next_++};
}

bool SlotRing::any(State state) const {
  return std::any_of(slots_.begin(), slots_.end(), [state](const auto& slot) { return slot.second.state == state; });
}

std::optional<SlotId> SlotRing::begin() {
  if (any(State::kWriting) || any(State::kSealed)) return std::nullopt;
  for (auto& [index, slot] : slots_) {
    if (slot.state != State::kFree || !slot.leases.empty()) continue;
    begin({epoch_, index});
    return SlotId{epoch_, index};
  }
  return std::nullopt;
}

void SlotRing::begin(SlotId slot) {
  at(slot).state = State::kWriting;
  at(slot).version = 0;
  at(slot).before.reset();
}

std::optional<SlotId> SlotRing::begin_single_copy(std::span<const Holder> yielding) {
  if (any(State::kWriting) || any(State::kSealed) || slots_.empty()) return std::nullopt;
  auto& [index, taken] = *slots_.begin();
  for (const Holder holder : taken.leases)
    if (std::find(yielding.begin(), yielding.end(), holder) == yielding.end()) return std::nullopt;
  const bool published = taken.state == State::kPublished;
  const Version before = taken.version;
  begin({epoch_, index});
  if (published) taken.before = before;
  return SlotId{epoch_, index};
}

void SlotRing::seal(SlotId slot, Version version) {
  at(slot).state = State::kSealed;
  at(slot).version = version;
}

void SlotRing::publish(SlotId slot) {
  for (auto& [index, other] : slots_)
    if (other.state == State::kPublished) other.state = State::kFree;
  at(slot).state = State::kPublished;
  at(slot).before.reset();
}

void SlotRing::abort(SlotId slot) {
  Slot& aborted = at(slot);
  aborted.state = aborted.before ? State::kPublished : State::kFree;
  if (aborted.before) aborted.version = *std::exchange(aborted.before, std::nullopt);
}

void SlotRing::spoil(SlotId slot) {
  at(slot).before.reset();
  abort(slot);
}

void SlotRing::lease(SlotId slot, Holder holder) { at(slot).leases.insert(holder); }

void SlotRing::release(SlotId slot, Holder holder) {
  const auto found = slots_.find(slot.index);
  if (slot.epoch == epoch_ && found != slots_.end()) found->second.leases.erase(holder);
}

void SlotRing::release_all(Holder holder) {
  for (auto& [index, slot] : slots_) slot.leases.erase(holder);
}

void SlotRing::keep_only(Holder holder, std::span<const SlotId> held) {
  for (auto& [index, slot] : slots_)
    if (std::find(held.begin(), held.end(), SlotId{epoch_, index}) == held.end()) slot.leases.erase(holder);
}

std::optional<SlotId> SlotRing::retirable(std::span<const Holder> unwilling, int spares,
                                          const std::set<Holder>& uncounted) const {
  if (any(State::kWriting) || any(State::kSealed)) return std::nullopt;
  std::optional<SlotId> chosen;
  for (const auto& [index, slot] : slots_) {
    if (slot.state != State::kFree) continue;
    const auto holds = [&leases = slot.leases](Holder holder) { return leases.contains(holder); };
    if (std::none_of(unwilling.begin(), unwilling.end(), holds)) return std::nullopt;
    if (!chosen || (slot.read_beside(uncounted) < at(*chosen).read_beside(uncounted))) chosen = SlotId{epoch_, index};
  }
  const bool counts = chosen && at(*chosen).read_beside(uncounted);
  if (counts && retired_beside(uncounted).size() >= static_cast<std::size_t>(spares)) return std::nullopt;
  return chosen;
}

bool SlotRing::Slot::read_beside(const std::set<Holder>& uncounted) const {
  return std::any_of(leases.begin(), leases.end(), [&](Holder each) { return !uncounted.contains(each); });
}

void SlotRing::retire(SlotId slot) { at(slot).state = State::kRetired; }

std::vector<SlotId> SlotRing::gone() const {
  std::vector<SlotId> gone;
  for (const auto& [index, slot] : slots_)
    if (slot.state == State::kRetired && slot.leases.empty()) gone.push_back({epoch_, index});
  return gone;
}

std::optional<SlotId> SlotRing::newest() const {
  for (const auto& [index, slot] : slots_)
    if (slot.state == State::kPublished) return SlotId{epoch_, index};
  return std::nullopt;
}

Version SlotRing::version(SlotId slot) const { return at(slot).version; }
SlotRing::State SlotRing::state(SlotId slot) const { return at(slot).state; }

std::vector<SlotId> SlotRing::slots() const {
  std::vector<SlotId> ids;
  for (const auto& [index, slot] : slots_)
    if (slot.state != State::kRetired) ids.push_back({epoch_, index});
  return ids;
}

std::vector<SlotId> SlotRing::retired() const {
  std::vector<SlotId> ids;
  for (const auto& [index, slot] : slots_)
    if (slot.state == State::kRetired) ids.push_back({epoch_, index});
  return ids;
}

std::vector<SlotId> SlotRing::retired_beside(const std::set<Holder>& uncounted) const {
  std::vector<SlotId> ids;
  for (const auto& [index, slot] : slots_)
    if (slot.state == State::kRetired && slot.read_beside(uncounted)) ids.push_back({epoch_, index});
  return ids;
}

std::vector<Holder> SlotRing::holders_of(SlotId slot) const { return {at(slot).leases.begin(), at(slot).leases.end()}; }

bool SlotRing::holds(SlotId slot, Holder holder) const {
  const auto found = slots_.find(slot.index);
  return found != slots_.end() && found->second.leases.contains(holder);
}

std::vector<Holder> SlotRing::holders() const {
  std::set<Holder> all;
  for (const auto& [index, slot] : slots_)
    if (slot.state == State::kFree || slot.state == State::kRetired) all.insert(slot.leases.begin(), slot.leases.end());
  return {all.begin(), all.end()};
}

}  // namespace bascule::inline v0
