#include <bascule/sender/fleet/catch_ups.h>

#include <utility>

namespace bascule::inline v0 {

void CatchUps::look_at_all() {
  for (const auto& [id, member] : books_.roster.members())
    if (member.welcomed() && member.owed && member.serving < books_.versions.published()) look_at(id);
}

std::optional<WorkerId> CatchUps::next() const {
  return waiting_.empty() ? std::nullopt : std::optional(*waiting_.begin());
}

void CatchUps::begin(Member& member, FleetTurn& turn) {
  if (!books_.slots.is_open() || !member.welcomed()) return;
  std::optional<Publication> newest = books_.slots.newest();
  if (!newest) return;
  newest->bytes = books_.layout->bytes();
  const InFlightVersion* const sent = books_.versions.sent();
  std::vector<Member*> ranks;
  bool owed = false;  // if it is due to one rank of a group, it is due to all: no rank flips alone
  for (Member* rank : books_.roster.ranks_of(member)) {
    if (!rank->welcomed() || rank->catch_up() || rank->releasing == newest->slot) return;
    if (sent != nullptr && sent->round.under_way() && sent->round.has(rank->id)) return;
    if (rank->serving >= newest->version) continue;
    owed |= rank->owed;
    ranks.push_back(rank);
  }
  if (!owed || !books_.roster.is_newer_for(member, newest->version)) return;  // it gets a later version
  std::vector<Round::WorkerIdentity> workers;
  workers.reserve(ranks.size());
  for (const Member* rank : ranks) workers.push_back({rank->id, rank->name(), rank->group()});
  InFlightVersion& version = books_.versions.begin(
      Round(
          *newest, std::move(workers),
          {.single_copy = false, .delivers = books_.rules.delivers, .behind = false, .each = false, .persists = false}),
      /*is_catch_up=*/true);
  try {
    start(ranks, version, turn);
  } catch (...) {
    for (const Member* rank : ranks)
      if (version.leased.contains(rank->id)) books_.slots.release(newest->slot, rank->holder());
    turn.going_on.erase(version.ticket);
    books_.versions.end(version.ticket);
    throw;
  }
}

void CatchUps::start(const std::vector<Member*>& ranks, InFlightVersion& version, FleetTurn& turn) {
  const Publication newest = version.publication();
  turn.going_on.insert(version.ticket);
  books_.limit(version, Limit::timeout(books_.endpoint, turn.now), turn);
  for (const Member* rank : ranks)
    if (!books_.slots.holds(newest.slot, rank->holder())) version.leased.insert(rank->id);
  books_.tell_prepare(ranks, newest, turn);
  for (Member* rank : ranks) books_.roster.set_catch_up(*rank, version.ticket);
  version.round.sealed(newest.digest);
}

// After one failure a worker gets the version again, but only once it has released the slot. After a second failure in
// a row it has been evicted.
void CatchUps::end(const InFlightVersion& version, FleetTurn& turn) {
  const bool aborted = version.round.phase() == Round::Phase::kAborted;
  for (const WorkerId id : version.round.remaining()) {
    Member* const member = books_.roster.find(id);
    if (member == nullptr || member->catch_up() != version.ticket) continue;
    look_at(id);  // a newer version may have been published meanwhile
    if (aborted && version.leased.contains(id)) member->releasing = version.publication().slot;
    books_.roster.set_catch_up(*member, std::nullopt);
  }
  if (!aborted && books_.versions.delivers(version.ticket)) turn.act(action::StopDelivery{version.ticket});
  books_.versions.end(version.ticket);
  turn.writer_waits = true;
}

// A worker may have no room yet for its version when a newer one is published; the next write would wait for the slot.
void CatchUps::give_up_idle(FleetTurn& turn) {
  for (const Ticket ticket : books_.versions.tickets()) {
    InFlightVersion& version = *books_.versions.find(ticket);
    if (!version.is_catch_up || version.round.phase() != Round::Phase::kSealed)
      continue;  // sealed: its worker is not ready
    if (version.version() >= books_.versions.published()) continue;
    turn.going_on.insert(ticket);
    version.round.abort(absl::AbortedError("a newer version came before there was room for it"));
  }
}

}  // namespace bascule::inline v0
