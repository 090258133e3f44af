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
  Prepare prepare{.version = publication.version,
                  .slot = publication.slot,
                  .lease = ++last_lease_,
                  .bytes = publication.bytes,
                  .offer = std::nullopt,
                  .slots = {}};
  for (const SlotId slot : slots.slots()) prepare.slots.push_back(slot.index);
  std::vector<WorkerId> knowing;
  for (Member* member : members) {
    slots.lease(publication.slot, member->holder());
    member->leases[publication.slot.index] = prepare.lease;
    if (member->releasing == publication.slot) member->releasing.reset();  // a single copy, which it holds again
    if (!member->knows.insert(publication.slot.index).second) {
      knowing.push_back(member->id);
    } else {
      turn.act(action::Offer{.id = member->id, .slot = slots.memory(publication.slot), .prepare = prepare});
    }
  }
  say(std::move(knowing), std::move(prepare), turn);
}

void Books::warn(std::string warning) {
  constexpr std::size_t kMostWarnings = 64;
  if (warnings_.size() < kMostWarnings) {
    warnings_.push_back(std::move(warning));
  } else {
    ++warnings_left_out_;
  }
}

std::vector<std::string> Books::take_warnings() {
  if (const std::size_t more = std::exchange(warnings_left_out_, 0); more > 0)
    warnings_.push_back(cat("and ", more, " more warning", more == 1 ? "" : "s"));
  return std::exchange(warnings_, {});
}

void Books::limit(InFlightVersion& version, const Limit& limit, FleetTurn& turn) {
  version.round.limit(limit);
  wake_at(limit.until, turn);
}

void Books::leave_time(InFlightVersion& version, FleetTurn& turn) {
  limit(version, version.round.limit().or_least(endpoint, turn.now), turn);
}

void Books::wake_at(Clock::time_point at, FleetTurn& turn) {
  if (const auto first = versions.wait_until(at)) turn.act(action::WakeAt{*first});
}

}  // namespace bascule::inline v0
