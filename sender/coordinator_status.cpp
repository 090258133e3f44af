// What the sender tells whoever asks. I/O thread.
#include <unistd.h>

#include <algorithm>
#include <set>

#include "sender/coordinator.h"
#include "transport/text.h"

namespace bascule {
namespace {

std::string_view to_string(SlotRing::State state) {
  switch (state) {
    case SlotRing::State::kFree: return "free";
    case SlotRing::State::kWriting: return "writing";
    case SlotRing::State::kStaged: return "staged";
    case SlotRing::State::kPublished: return "published";
    case SlotRing::State::kRetired: return "retired";
  }
  return "unknown";
}

}  // namespace

std::vector<SlotId> Coordinator::all_slots() const {
  if (!ring_) return {};
  std::vector<SlotId> all = ring_->slots();
  const std::vector<SlotId> retired = ring_->retired();
  all.insert(all.end(), retired.begin(), retired.end());
  return all;
}

std::vector<std::uint32_t> Coordinator::leases_of(Holder holder) const {
  std::vector<std::uint32_t> held;
  for (const SlotId slot : all_slots()) {
    const std::vector<Holder> holders = ring_->holders_of(slot);
    if (std::ranges::find(holders, holder) != holders.end()) held.push_back(slot.index);
  }
  return held;
}

WorkerStatus Coordinator::status_of(const Member& member) const {
  const std::optional<SlotId> newest = ring_ ? ring_->newest() : std::nullopt;
  const bool waits = member.stage != Member::Stage::kWelcomed || !newest;
  const char* const behind = member.owed ? "catching up" : "left out";
  WorkerStatus status{.worker = member.name(),
                      .pid = member.hello.pid,
                      .host = member.hello.host,
                      .group = member.hello.group,
                      .rank = member.hello.rank,
                      .state = waits                                       ? "waiting"
                               : member.serving == ring_->version(*newest) ? "serving"
                                                                           : behind,
                      .serving = member.serving,
                      .leases = leases_of(member.hello.instance)};
  if (const auto known = poisoned_.find(member.name()); known != poisoned_.end()) {
    status.state = "poisoned";
    status.why = known->second;
  }
  return status;
}

SlotStatus Coordinator::status_of(SlotId slot) const {
  const auto taken_ahead = [&] {
    const std::lock_guard lock(mutex_);
    return shared_.ahead == slot;
  };
  const SlotRing::State state = taken_ahead() ? SlotRing::State::kFree : ring_->state(slot);
  SlotStatus status{.index = slot.index, .state = std::string(to_string(state)), .version = ring_->version(slot)};
  const auto digest = slot_digests_.find(slot.index);
  if (state == SlotRing::State::kPublished && digest != slot_digests_.end()) status.digest = digest->second;
  for (const Holder holder : ring_->holders_of(slot)) status.holders.push_back(names_of({holder}));
  std::ranges::sort(status.holders);
  return status;
}

void Coordinator::describe(Channel& channel) {
  SenderStatus status;
  status.scheme = endpoint_.scheme;
  status.pid = ::getpid();
  status.epoch = epoch_;
  status.version = published_version_.load(std::memory_order_relaxed);
  status.digest = endpoint_.digest;
  status.layout = layout_;

  std::set<std::string> named;
  for (const auto& member : members_) {
    status.workers.push_back(status_of(*member));
    named.insert(member->name());
  }
  for (const auto& [name, why] : poisoned_)
    if (named.insert(name).second) status.workers.push_back({.worker = name, .state = "poisoned", .why = why});
  for (const auto& [holder, name] : holder_names_)
    if (std::vector<std::uint32_t> leases = leases_of(holder); !leases.empty() && named.insert(name).second)
      status.workers.push_back({.worker = name, .state = "gone", .leases = std::move(leases)});

  for (const SlotId slot : all_slots()) status.slots.push_back(status_of(slot));
  std::vector<int> descriptors;
  if (ring_ && !endpoint_.over_tcp()) {  // what a worker would be offered, for as long as it takes to say so
    Hello asks;
    asks.worker = "bascule-status";
    const WorkerId id = next_worker_++;
    std::vector<OfferedSlot> offered;
    for (const SlotId slot : ring_->slots())
      if (const auto known = slots_.find(slot.index); known != slots_.end()) offered.push_back(known->second);
    if (absl::StatusOr<Offer> offer = transport_.admit(id, asks, offered); offer.ok()) {
      status.offer = std::move(offer->bytes);
      for (const OfferedSlot& slot : offered) status.offered.push_back(slot.id.index);
      descriptors = std::move(offer->descriptors);
      descriptors.push_back(control_page_);
      transport_.dismiss(id);
    }
  }
  channel.send(status, descriptors);
}

}  // namespace bascule
