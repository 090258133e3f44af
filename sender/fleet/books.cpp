#include <bascule/sender/fleet/books.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

Books::Books(FleetRules given)
    : rules(std::move(given)),
      roster(rules.epoch),
      attendance(rules.expected),
      versions(rules.published, rules.used),
      slots(endpoint, rules.epoch, rules.fresh_slots, [this](Holder holder) {
        return versions.is_delivery(holder) ? "a delivery that has not ended" : roster.name_of(holder);
      }) {}

void Books::say(std::vector<WorkerId> to, Message message, FleetTurn& turn) const {
  std::erase_if(to, [this](WorkerId id) { return roster.find(id) == nullptr; });
  if (!to.empty()) turn.act(action::Say{.to = std::move(to), .message = std::move(message)});
}

void Books::tell_prepare(const std::vector<Member*>& members, const Publication& publication, FleetTurn& turn) {
  std::vector<Action> offers;
  Prepare prepare{.version = publication.version,
                  .slot = publication.slot,
                  .lease = ++last_lease_,
                  .bytes = publication.bytes,
                  .offer = std::nullopt,
                  .slots = {}};
  for (const SlotId slot : slots.slots()) prepare.slots.push_back(slot.index);
  std::vector<WorkerId> knowing;
  struct Told {  // with the nodes that are moved to the member
    Member* member;
    std::map<std::uint32_t, LeaseNumber> lease;
    std::set<std::uint32_t> slot;
  };
  std::vector<Told> told;
  told.reserve(members.size());
  for (Member* member : members) {
    slots.lease(publication.slot, member->holder());
    told.push_back({member, {{publication.slot.index, prepare.lease}}, {publication.slot.index}});
    if (member->knows.contains(publication.slot.index)) {
      knowing.push_back(member->id);
    } else {
      offers.emplace_back(action::Offer{.id = member->id, .slot = slots.memory(publication.slot), .prepare = prepare});
    }
  }
  if (!knowing.empty()) offers.emplace_back(action::Say{.to = std::move(knowing), .message = std::move(prepare)});
  turn.act_all(std::move(offers));
  for (auto& [member, lease, slot] : told) {  // without memory
    member->leases.erase(publication.slot.index);
    member->leases.merge(lease);
    member->knows.merge(slot);
    if (member->releasing == publication.slot) member->releasing.reset();  // a single copy, which it holds again
  }
}

void Books::warn(std::string warning) {
  constexpr std::size_t kMostWarnings = 64;
  if (warnings_.size() < kMostWarnings) {
    warnings_.push_back(std::move(warning));
  } else {
    ++warnings_left_out_;
  }
}

std::vector<std::string> Books::warnings() const {
  std::vector<std::string> all = warnings_;
  if (warnings_left_out_ > 0)
    all.push_back(cat("and ", warnings_left_out_, " more warning", warnings_left_out_ == 1 ? "" : "s"));
  return all;
}

void Books::limit(InFlightVersion& version, const Limit& limit, FleetTurn& turn) {
  version.round.limit(limit);
  wake_at(limit.until, turn);
}

void Books::leave_time(InFlightVersion& version, FleetTurn& turn) {
  limit(version, version.round.limit().or_least(endpoint, turn.now), turn);
}

void Books::wake_at(Clock::time_point at, FleetTurn& turn) {
  const auto first = versions.wait_until(at);
  if (!first) return;
  turn.act(action::WakeAt{*first});
  versions.wakes(*first);
}

}  // namespace bascule::inline v0
