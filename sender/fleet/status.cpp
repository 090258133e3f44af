// Fleet: its answer to a status query.
#include <algorithm>
#include <set>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

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

WorkerStatus status_of(const Member& member, const Books& books) {
  const std::optional<Publication> newest = books.slots.newest();
  const bool waits = !member.welcomed() || !newest;
  const InFlightVersion* const version = books.versions.of(member.catch_up());
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
                      .leases = books.slots.leases_of(member.holder()),
                      .bytes = member.bytes};
  if (const std::string* const why = books.roster.poisoned().find(member.name())) {
    status.state = "poisoned";
    status.why = *why;
  }
  return status;
}

SlotStatus status_of(SlotId slot, std::optional<SlotId> untouched, const Books& books) {
  const SlotRing::State state = slot == untouched ? SlotRing::State::kFree : books.slots.state(slot);
  SlotStatus status{.index = slot.index, .state = std::string(to_string(state)), .version = books.slots.version(slot)};
  if (state == SlotRing::State::kPublished) status.digest = books.slots.digest(slot);
  for (const Holder holder : books.slots.holders_of(slot)) status.holders.push_back(books.roster.name_of(holder));
  std::ranges::sort(status.holders);
  return status;
}

}  // namespace

SenderStatus Fleet::status(std::optional<SlotId> untouched) const {
  SenderStatus status;
  status.scheme = books_.endpoint.scheme;
  status.epoch = books_.rules.epoch;
  status.version = books_.versions.published();
  status.digest = books_.endpoint.digest;
  status.encoded_layout = books_.encoded_layout;
  if (!status.encoded_layout && books_.layout) status.layout = *books_.layout;

  std::set<std::string> named;
  for (const auto& [id, member] : books_.roster.members()) {
    status.workers.push_back(status_of(member, books_));
    named.insert(member.name());
  }
  books_.roster.poisoned().for_each([&](const std::string& name, const std::string& why) {
    if (named.insert(name).second) status.workers.push_back({.worker = name, .state = "poisoned", .why = why});
  });
  for (const auto& [holder, known] : books_.roster.known_holders()) {
    std::vector<std::uint32_t> leases = books_.slots.leases_of(holder);
    if (leases.empty() || books_.roster.connected(holder)) continue;
    // Several dead workers may have had one name.
    if (known.left_running.empty() && !named.insert(known.worker).second) continue;
    WorkerStatus gone{.worker = known.worker, .state = "gone", .leases = std::move(leases)};
    if (!known.left_running.empty())
      gone.why = cat("its process has ended, but ", known.left_running, " still has its lease; stop that process");
    status.workers.push_back(std::move(gone));
  }
  for (const SlotId slot : books_.slots.all()) status.slots.push_back(status_of(slot, untouched, books_));
  return status;
}

}  // namespace bascule::inline v0
