#include <bascule/sender/fleet/slot_allocator.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void SlotAllocator::open(const std::vector<OfferedSlot>& slots) {
  for (std::size_t done = ring_.slots().size(); done < slots.size(); ++done) {
    memory_[ring_.next().index] = slots[done];
    ring_.add();
  }
  open_ = true;
}

// ---- which slot is written ----

// Only a slot that is free now. Holders may have released other slots by the time of the next send.
std::optional<SlotId> SlotAllocator::take_ahead() {
  if (granted_ || single_copy() || fresh_slots_) return std::nullopt;
  ahead_ = ring_.begin();
  granted_ = ahead_.has_value();
  return ahead_;
}

std::optional<Grant> SlotAllocator::take(std::span<const Holder> unwilling) {
  std::optional<SlotId> slot = ahead_ ? std::exchange(ahead_, std::nullopt) : ring_.begin();
  const bool used_up = slot && fresh_slots_ && digests_.contains(slot->index);
  if (used_up) ring_.abort(*slot);
  if (slot && !used_up) {
    granted_ = true;
    return Grant{.slot = *slot};
  }
  const std::optional<SlotId> retired = used_up ? slot : ring_.retirable(unwilling, spares(), uncounted());
  if (retired) ring_.retire(*retired);
  try {
    return make_slot(retired && !used_up);
  } catch (...) {
    if (retired) ring_.abort(*retired);  // free again
    throw;
  }
}

std::optional<Grant> SlotAllocator::make_slot(bool is_spare) {
  if (ring_.slots().size() >= static_cast<std::size_t>(endpoint_.slots)) return std::nullopt;
  Grant grant{.slot = ring_.next(), .is_new = true, .spare_for = readers_on(ring_.retired())};
  std::string spare = is_spare ? spare_made(grant) : "";
  ring_.begin(ring_.add());
  granted_ = true;
  if (is_spare) spare_ = std::move(spare);
  return grant;
}

std::string SlotAllocator::spare_made(const Grant& grant) const {
  const std::size_t counted = ring_.retired_beside(uncounted()).size();
  return cat("slot ", grant.slot.index, " was made",
             counted == 0 ? "" : cat(", spare slot ", counted, " of ", spares()), ": ", grant.spare_for,
             " still read and are not waited for",
             orphaned_.empty() ? "" : "; stop the processes that dead workers left running, to free their slots");
}

std::optional<Grant> SlotAllocator::take_single_copy(std::span<const Holder> yielding) {
  const std::optional<SlotId> slot = ring_.begin_single_copy(yielding);
  if (!slot) return std::nullopt;
  granted_ = true;
  return Grant{.slot = *slot};
}

Grant SlotAllocator::replace(const Grant& grant) {
  Grant fresh = grant;
  fresh.slot = ring_.add();
  fresh.is_new = true;
  ring_.begin(fresh.slot);
  ring_.abort(grant.slot);
  ring_.retire(grant.slot);
  ahead_.reset();
  granted_ = true;
  return fresh;
}

void SlotAllocator::give_back(const Grant& grant) {
  granted_ = false;
  ahead_.reset();
  spare_.clear();
  ring_.abort(grant.slot);
  if (grant.is_new) ring_.retire(grant.slot);  // it never had memory
}

void SlotAllocator::announced() {
  granted_ = false;
  ahead_.reset();
  spare_.clear();
}

void SlotAllocator::drop(SlotId slot) {
  ring_.drop(slot);
  memory_.erase(slot.index);
  digests_.erase(slot.index);
}

void SlotAllocator::publish(const Publication& publication) {
  digests_[publication.slot.index] = publication.digest;
  ring_.publish(publication.slot);
}

// ---- who holds what ----

void SlotAllocator::end_leases(Holder holder) {
  ring_.release_all(holder);
  left_.erase(holder);
  orphaned_.erase(holder);
}

void SlotAllocator::orphaned(Holder holder) {
  if (left_.contains(holder)) orphaned_.insert(holder);
}

void SlotAllocator::keep_only(Holder holder, const std::vector<HeldSlot>& held) {
  std::vector<SlotId> kept;
  kept.reserve(held.size());
  for (const HeldSlot& slot : held) kept.push_back(slot.slot);
  ring_.keep_only(holder, kept);
  left_.erase(holder);
  orphaned_.erase(holder);
}

void SlotAllocator::left(Holder holder) {
  if (!leases_of(holder).empty()) left_.insert(holder);
}

std::vector<std::uint32_t> SlotAllocator::leases_of(Holder holder) const {
  std::vector<std::uint32_t> held;
  for (const SlotId slot : all())
    if (ring_.holds(slot, holder)) held.push_back(slot.index);
  return held;
}

// ---- state ----

std::optional<Publication> SlotAllocator::newest() const {
  const std::optional<SlotId> slot = ring_.newest();
  if (!slot) return std::nullopt;
  return Publication{.version = ring_.version(*slot), .slot = *slot, .bytes = 0, .digest = digest(*slot)};
}

std::vector<OfferedSlot> SlotAllocator::offered() const {
  std::vector<OfferedSlot> offered;
  for (const SlotId slot : ring_.slots())
    if (const auto known = memory_.find(slot.index); known != memory_.end()) offered.push_back(known->second);
  return offered;
}

bool SlotAllocator::on_device() const { return !memory_.empty() && memory_.begin()->second.memory->device != kHost; }

std::optional<Digest> SlotAllocator::digest(SlotId slot) const {
  const auto known = digests_.find(slot.index);
  return known == digests_.end() ? std::nullopt : known->second;
}

std::vector<SlotId> SlotAllocator::all() const {
  std::vector<SlotId> all = ring_.slots();
  const std::vector<SlotId> retired = ring_.retired();
  all.insert(all.end(), retired.begin(), retired.end());
  return all;
}

// ---- texts ----

std::string SlotAllocator::readers_on(const std::vector<SlotId>& slots) const {
  std::string text;
  for (const SlotId slot : slots) {
    if (ring_.state(slot) != SlotRing::State::kFree && ring_.state(slot) != SlotRing::State::kRetired) continue;
    for (const Holder holder : ring_.holders_of(slot))
      absl::StrAppend(&text, text.empty() ? "" : ", ", name_of_(holder), " (slot ", slot.index, ")");
  }
  return text;
}

std::optional<int> SlotAllocator::spares_used() const {
  const auto used = static_cast<int>(ring_.retired_beside(uncounted()).size());
  return !single_copy() && used >= spares() ? std::optional(used) : std::nullopt;
}

}  // namespace bascule::inline v0
