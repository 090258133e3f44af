// Fleet: the newest version on its way to one worker that is behind, or to the ranks of one group.
#include <utility>

#include <bascule/sender/fleet/fleet.h>

namespace bascule::inline v0 {

void Fleet::catch_up(Member& member) {
  if (!slots_.is_open() || !member.welcomed()) return;
  std::optional<Publication> newest = slots_.newest();
  if (!newest) return;
  newest->bytes = layout_->bytes();
  const InFlightVersion* const sent = versions_.sent();
  std::vector<Member*> behind;
  bool owed = false;  // if it is due to one rank of a group, it is due to all: no rank flips alone
  for (Member* rank : roster_.ranks_of(member)) {
    if (!rank->welcomed() || rank->catch_up() || rank->releasing == newest->slot) return;
    if (sent != nullptr && sent->round.under_way() && sent->round.has(rank->id)) return;
    if (rank->serving >= newest->version) continue;
    owed |= rank->owed;
    behind.push_back(rank);
  }
  if (!owed || !is_newer_for(member, newest->version)) return;  // then the next one is for it
  std::vector<Round::WorkerIdentity> workers;
  workers.reserve(behind.size());
  for (const Member* rank : behind) workers.push_back({rank->id, rank->name(), rank->group()});
  InFlightVersion& version = versions_.begin(
      Round(*newest, std::move(workers),
            {.single_copy = false, .delivers = rules_.delivers, .behind = false, .each = false, .persists = false}),
      now_, /*is_catch_up=*/true);
  wait_until(version, now_ + absl::ToChronoNanoseconds(endpoint_.timeout));
  for (Member* rank : behind) {
    roster_.set_catch_up(*rank, version.ticket);
    if (!slots_.holds(newest->slot, rank->holder())) version.leased.insert(rank->id);
  }
  tell_prepare(behind, *newest);
  version.round.sealed(newest->digest);
  going_on_.insert(version.ticket);
}

// Ends a catch-up that settled or was aborted. After one failure the worker is told again, but only once it has
// released the slot. After a second failure in a row it is evicted already.
void Fleet::end_catch_up(const InFlightVersion& version) {
  const bool aborted = version.round.phase() == Round::Phase::kAborted;
  for (const WorkerId id : version.round.remaining()) {
    Member* const member = roster_.find(id);
    if (member == nullptr || member->catch_up() != version.ticket) continue;
    if (aborted && version.leased.contains(id)) member->releasing = version.publication().slot;
    roster_.set_catch_up(*member, std::nullopt);
    behind_.insert(id);  // a newer version may have been published meanwhile
  }
  if (!aborted && delivered_from_.contains(version.ticket))
    act(action::StopDelivery{version.ticket});  // nobody is left
  versions_.end(version.ticket);
  writer_waits_ = true;
}

void Fleet::catch_up_all() {
  for (const auto& [id, member] : roster_.members())
    if (member.welcomed() && member.owed && member.serving < versions_.published()) behind_.insert(id);
}

// A worker may have no room yet for its version when a newer one is published. It then holds a slot for nothing, and
// the next write would wait for that slot. So its catch-up restarts at the newest version.
void Fleet::give_up_idle_catch_ups() {
  for (const Ticket ticket : versions_.tickets()) {
    InFlightVersion& version = *versions_.find(ticket);
    if (!version.is_catch_up || version.round.phase() != Round::Phase::kSealed) continue;  // sealed: not ready for it
    if (version.version() >= versions_.published()) continue;
    version.round.abort(absl::AbortedError("a newer version came before there was room for it"));
    going_on_.insert(ticket);
  }
}

}  // namespace bascule::inline v0
