// Fleet: a slot for the public thread: which one, when, and for which workers.
#include <algorithm>
#include <utility>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Fleet::note(event::TakeWanted& wanted) {
  wanted_ = std::move(wanted.workers);
  writer_waits_ = true;
}

void Fleet::note(event::TakeGivenUp&) {
  wanted_.reset();
  writer_waits_ = true;
}

void Fleet::note(event::SlotReplaced& replaced) {
  Grant grant = slots_.replace(std::move(replaced.grant));
  drop_gone();  // the one that it replaces among them
  act(action::GrantSlot{std::move(grant)});
}

void Fleet::note(event::GivenBack& back) {
  versions_.use(back.grant.version);
  slots_.give_back(back.grant);
  writer_waits_ = true;
}

// Gives the public thread the slot that it waits for, as soon as there is one. If the thread does not wait, the slot of
// the next send to all is taken ahead.
void Fleet::serve_writer() {
  if (InFlightVersion* sent = versions_.sent()) return let_write(*sent);
  if (!slots_.is_open() || (slots_.granted() && !slots_.ahead())) return;
  if (!wanted_) {
    drop_gone();
    if (const std::optional<SlotId> ahead = slots_.take_ahead()) act(action::TakeAhead{*ahead});
    return;
  }
  if (!wanted_->empty()) {
    if (const auto known = roster_.addressed(*wanted_); !known.ok()) {
      wanted_.reset();
      act(action::GrantSlot{known.status()});
      if (slots_.ahead()) act(action::TakeAhead{*slots_.ahead()});
      return;
    }
  }
  std::optional<Grant> grant = take_slot();
  if (!grant) return give_up_idle_catch_ups();
  grant->in_parts = writes_in_parts();
  grant->to = *std::exchange(wanted_, std::nullopt);
  drop_gone();
  act(action::GrantSlot{*std::move(grant)});
}

std::optional<Grant> Fleet::take_slot() {
  if (!slots_.single_copy()) return slots_.take(unwilling());
  std::vector<Holder> yielding;
  for (const auto& [id, member] : roster_.members()) {
    if (member.catch_up()) return std::nullopt;  // it is about to read
    if (member.welcomed()) yielding.push_back(member.holder());
  }
  return slots_.take_single_copy(yielding);
}

// Holders that may never release by themselves: evicted workers may have stopped for good, and workers that a send left
// out read on as long as sends leave them out.
std::vector<Holder> Fleet::unwilling() {
  std::vector<Holder> unwilling(slots_.left_behind().begin(), slots_.left_behind().end());
  if (!some_left_out_) return unwilling;
  for (const auto& [id, member] : roster_.members())
    if (member.welcomed() && !member.owed && !member.catch_up() && member.serving < versions_.published())
      unwilling.push_back(member.holder());
  return unwilling;
}

void Fleet::drop_gone() {
  for (const SlotId slot : slots_.drop_gone()) {
    act(action::DropSlot{slot});
    for (auto& [id, member] : roster_.members()) {
      member.leases.erase(slot.index);
      member.knows.erase(slot.index);
    }
  }
}

// ---- for which workers ----

void Fleet::note(event::Announced& announced) {
  const Grant& grant = announced.grant;
  versions_.use(grant.version);
  slots_.announce(grant, announced.memory);
  if (std::string warning = slots_.take_warning(); !warning.empty()) warnings_.push_back(std::move(warning));
  const Publication publication{
      .version = grant.version, .slot = grant.slot, .bytes = layout_->bytes(), .digest = std::nullopt};
  const std::vector<WorkerId> owed = roster_.still_addressed(grant.to);  // empty if all have left
  std::vector<Member*> told;
  std::vector<Round::WorkerIdentity> workers;
  for (const WorkerId id : owed) {
    Member& member = *roster_.find(id);
    if (!is_newer_for(member, grant.version) || catches_up(member)) continue;
    told.push_back(&member);
    workers.push_back({id, member.name(), member.group()});
  }
  tell_prepare(told, publication);
  if (slots_.memory(grant.slot).memory->device != kHost) act(action::KeepAwake{true});
  InFlightVersion& sent = versions_.begin(Round(publication, std::move(workers),
                                                {.single_copy = slots_.single_copy(),
                                                 .delivers = rules_.delivers,
                                                 .behind = rules_.delivers_while_written && grant.in_parts,
                                                 .each = endpoint_.commit_each,
                                                 .persists = rules_.persists}),
                                          Clock::time_point::max(), /*is_catch_up=*/false);
  sent.names = grant.to;
  sent.owed.insert(owed.begin(), owed.end());
  sent.written = !slots_.single_copy();  // that is written once it may be
  if (slots_.single_copy()) wait_until(sent, announced.deadline);
  going_on_.insert(sent.ticket);
}

// Whether a version is above what a worker, and the other ranks of its group, have of another epoch. It may not be, if
// sender.lock was lost: then this sender did not know those numbers when it gave its own.
bool Fleet::is_newer_for(Member& member, Version version) {
  if (member.group().empty()) return member.before < version;
  return std::ranges::all_of(roster_.ranks_of(member), [=](const Member* rank) { return rank->before < version; });
}

// A group flips together: a rank that catches up keeps the others out.
bool Fleet::catches_up(Member& member) {
  if (member.group().empty()) return member.catch_up().has_value();
  return std::ranges::any_of(roster_.ranks_of(member), [](const Member* rank) { return rank->catch_up().has_value(); });
}

// Leases the slot to workers and tells them. Workers that know the slot get one message; the others get an offer too.
void Fleet::tell_prepare(const std::vector<Member*>& members, const Publication& publication) {
  Prepare prepare{.version = publication.version,
                  .slot = publication.slot,
                  .lease = ++last_lease_,
                  .bytes = publication.bytes,
                  .offer = std::nullopt,
                  .slots = {}};
  for (const SlotId slot : slots_.slots()) prepare.slots.push_back(slot.index);
  std::vector<WorkerId> knowing;
  for (Member* member : members) {
    slots_.lease(publication.slot, member->holder());
    member->leases[publication.slot.index] = prepare.lease;
    if (member->releasing == publication.slot) member->releasing.reset();  // of a single copy: it holds that again
    if (!member->knows.insert(publication.slot.index).second) {
      knowing.push_back(member->id);
    } else {
      act(action::Offer{.id = member->id, .slot = slots_.memory(publication.slot), .prepare = prepare});
    }
  }
  say(std::move(knowing), std::move(prepare));
}

}  // namespace bascule::inline v0
