// Fleet: what it says of itself when asked.
#include <algorithm>
#include <set>

#include <bascule/sender/fleet/fleet.h>

namespace bascule::inline v0 {
namespace {

std::string_view to_string(SlotRing::State state) {
  switch (state) {
    case SlotRing::State::kFree: return "free";
    case SlotRing::State::kWriting: return "writing";
    case SlotRing::State::kSealed: return "sealed";
    case SlotRing::State::kPublished: return "published";
    case SlotRing::State::kRetired: return "retired";
  }
  return "unknown";
}

}  // namespace

WorkerStatus Fleet::status_of(const Member& member) const {
  const std::optional<Publication> newest = slots_.newest();
  const bool waits = !member.welcomed() || !newest;
  const InFlightVersion* const version = versions_.of(member.catch_up());
  const char* const behind = version != nullptr && version->round.is_loading(member.id) ? "loading"
                             : member.owed                                              ? "catching up"
                                                                                        : "left out";
  WorkerStatus status{.worker = member.name(),
                      .pid = member.hello.pid,
                      .host = member.hello.host,
                      .group = member.hello.group,
                      .rank = member.hello.rank,
                      .state = waits                               ? "waiting"
                               : member.serving == newest->version ? "serving"
                                                                   : behind,
                      .serving = member.serving,
                      .leases = slots_.leases_of(member.holder())};
  if (const auto known = roster_.poisoned().find(member.name()); known != roster_.poisoned().end()) {
    status.state = "poisoned";
    status.why = known->second;
  }
  return status;
}

SlotStatus Fleet::status_of(SlotId slot, std::optional<SlotId> untouched) const {
  const SlotRing::State state = slot == untouched ? SlotRing::State::kFree : slots_.state(slot);
  SlotStatus status{.index = slot.index, .state = std::string(to_string(state)), .version = slots_.version(slot)};
  if (state == SlotRing::State::kPublished) status.digest = slots_.digest(slot);
  for (const Holder holder : slots_.holders_of(slot)) status.holders.push_back(roster_.name_of(holder));
  std::ranges::sort(status.holders);
  return status;
}

SenderStatus Fleet::status(std::optional<SlotId> untouched) const {
  SenderStatus status;
  status.scheme = endpoint_.scheme;
  status.epoch = rules_.epoch;
  status.version = versions_.published();
  status.digest = endpoint_.digest;
  status.layout = layout_;

  std::set<std::string> named;
  for (const auto& [id, member] : roster_.members()) {
    status.workers.push_back(status_of(member));
    named.insert(member.name());
  }
  for (const auto& [name, why] : roster_.poisoned())
    if (named.insert(name).second) status.workers.push_back({.worker = name, .state = "poisoned", .why = why});
  for (const auto& [holder, name] : roster_.holder_names())
    if (std::vector<std::uint32_t> leases = slots_.leases_of(holder); !leases.empty() && named.insert(name).second)
      status.workers.push_back({.worker = name, .state = "gone", .leases = std::move(leases)});
  for (const SlotId slot : slots_.all()) status.slots.push_back(status_of(slot, untouched));
  return status;
}

}  // namespace bascule::inline v0
