// What the engine has left, and when the sender may write it again: not before the engine's stream has passed it, too.
// I/O thread but where said.
#include <algorithm>

#include <boost/asio/post.hpp>

#include "receiver/session.h"
#include "transport/text.h"

namespace bascule {

namespace asio = boost::asio;

// The engine reads `before` no more, but `now`. The prepare thread lets go of the slot, and of its whole epoch when
// this was the last; then the sender may write it. Over another connection that word would end another lease: there the
// hello has said it.
void Session::release(Target before, const std::optional<Target>& now, std::shared_ptr<DeviceMark> mark) {
  const bool same_slot = now && now->source() == before.source(), same_lease = now && now->lease == before.lease;
  const bool unmaps_nothing = now && now->attachment == before.attachment;
  if (mark) {
    if (!same_lease)
      draining_.push_back({.held = {.slot = before.lease, .version = before.version}, .connection = connection_});
    return release_behind(std::move(before), std::move(mark), same_lease);
  }
  auto task = [this, before = std::move(before), same_slot, same_lease, connection = connection_] {
    if (!same_slot && before.attachment) before.attachment->release(before.source());
    if (same_lease) return;
    asio::post(io_, [this, slot = before.lease, version = before.version, connection] {
      if (connection != connection_) return;
      let_go(slot, version);
    });
  };
  only_looks_up() && unmaps_nothing ? preparer_->run_or_submit(std::move(task)) : preparer_->submit(std::move(task));
}

// The device has passed what read the slot.
void Session::drained(SlotId slot, Version version) {
  const auto entry = std::ranges::find_if(
      draining_, [&](const Draining& each) { return each.held.slot == slot && each.held.version == version; });
  if (entry == draining_.end()) return;
  const bool knows = entry->connection == connection_;
  draining_.erase(entry);
  if (!knows) return;
  let_go(slot, version);
}

// A lease is on a slot: it goes on while another version in it is held, or on its way. Told of a later version than the
// one that it let go of, the worker means that lease.
void Session::let_go(SlotId slot, Version version) {
  const bool on_its_way = incoming_ && incoming_->publication.slot == slot;
  const std::vector<HeldSlot> still = held();
  if (on_its_way || std::ranges::find(still, slot, &HeldSlot::slot) != still.end()) return;
  const auto told = told_.find(slot);
  send(Released{.slot = slot, .version = told == told_.end() ? version : std::max(version, told->second)});
  if (std::ranges::find(slots_, slot.index) == slots_.end()) let_go_of_others(slots_);
}

// However long the engine's stream takes: the slot is leased until then, and what else the prepare thread has to do has
// its turn in between.
void Session::release_behind(Target before, std::shared_ptr<DeviceMark> mark, bool same_lease) {
  preparer_->submit([this, before = std::move(before), mark = std::move(mark), same_lease] {
    const absl::Status passed = mark->wait(Deadline(absl::Milliseconds(20)));
    if (absl::IsDeadlineExceeded(passed)) return release_behind(before, mark, same_lease);
    if (!passed.ok()) return poison(cat("the engine's stream: ", message_of(passed)));  // and it stays leased
    before.attachment->release(before.source());
    if (same_lease) return;
    asio::post(io_, [this, slot = before.lease, version = before.version] { drained(slot, version); });
  });
}

absl::StatusOr<std::shared_ptr<DeviceMark>> Session::mark_stream(int device) {
  auto free = std::ranges::find_if(
      marks_, [device](const auto& mark) { return mark.use_count() == 1 && mark->device() == device; });
  if (free == marks_.end()) {
    BASCULE_ASSIGN(std::shared_ptr<DeviceMark> made, make_device_mark(device));
    free = marks_.insert(marks_.end(), std::move(made));
  }
  BASCULE_TRY((*free)->record(options_.stream));
  return *free;
}

bool Session::wait_for(const DeviceMark* mark) {
  const absl::Status passed = mark->wait(Deadline(endpoint_.timeout));
  if (!passed.ok()) poison(cat("the engine's stream: ", message_of(passed)));
  return passed.ok();
}

// Of the sender's slots and of the scheme's own memory: none of what was copied.
std::vector<SlotId> Session::slots_in_use() const {
  std::vector<SlotId> slots;
  for (const std::optional<Target>* target : {&serving_, &taken_, &decided_})
    if (*target && (*target)->attachment) slots.push_back((*target)->source());
  for (const auto& [version, target] : offered_)
    if (target.attachment) slots.push_back(target.source());
  return slots;
}

std::vector<HeldSlot> Session::held() const {
  std::vector<HeldSlot> slots;
  for (const std::optional<Target>* target : {&serving_, &taken_, &decided_})
    if (*target && (*target)->attachment) slots.push_back({.slot = (*target)->lease, .version = (*target)->version});
  for (const auto& [version, target] : offered_)
    if (target.attachment) slots.push_back({.slot = target.lease, .version = version});
  for (const Draining& left : draining_) slots.push_back(left.held);
  for (const Target& left : lost_) slots.push_back({.slot = left.lease, .version = left.version});
  return slots;
}

}  // namespace bascule
