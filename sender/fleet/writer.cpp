#include <bascule/sender/fleet/writer.h>

#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Writer::note(event::TakeWanted& wanted, FleetTurn& turn) {
  wanted_ = std::move(wanted.workers);
  turn.writer_waits = true;
}

void Writer::note(event::TakeGivenUp&, FleetTurn& turn) {
  wanted_.reset();
  turn.writer_waits = true;
}

void Writer::note(event::SlotReplaced& replaced, FleetTurn& turn) {
  grant_ = books_.slots.replace(replaced.grant);
  turn.writer_waits = true;
}

void Writer::note(event::GivenBack& back, FleetTurn& turn) {
  books_.versions.use(back.grant.version);
  books_.slots.give_back(back.grant);
  turn.writer_waits = true;
}

void Writer::serve(FleetTurn& turn) {
  if (grant_) return hand_over(turn);
  if (InFlightVersion* sent = books_.versions.sent()) return single_copy_.let_write(*sent, turn);
  SlotAllocator& slots = books_.slots;
  if (!slots.is_open() || (slots.granted() && !slots.ahead())) return;
  if (!wanted_) {
    drop_gone(turn);
    turn.make_room();
    if (const std::optional<SlotId> ahead = slots.take_ahead()) turn.act(action::TakeAhead{*ahead});
    return;
  }
  if (!wanted_->empty()) {
    const auto known = books_.roster.addressed(*wanted_);
    const absl::Status refused = !known.ok()           ? known.status()
                                 : slots.single_copy() ? single_copy_.check(*known)
                                                       : absl::OkStatus();
    if (!refused.ok()) {
      turn.make_room(2);
      wanted_.reset();
      turn.act(action::GrantSlot{refused});
      if (slots.ahead()) turn.act(action::TakeAhead{*slots.ahead()});
      return;
    }
  }
  std::optional<Grant> grant = slots.single_copy() ? single_copy_.take() : slots.take(unwilling());
  if (!grant) return catch_ups_.give_up_idle(turn);
  grant->in_pieces = books_.writes_in_pieces();
  grant->to = *std::exchange(wanted_, std::nullopt);
  grant_ = std::move(grant);
  hand_over(turn);
}

void Writer::hand_over(FleetTurn& turn) {
  drop_gone(turn);  // including a replaced slot
  turn.make_room();
  turn.act(action::GrantSlot{*std::exchange(grant_, std::nullopt)});
}

// Holders that may never release by themselves: evicted workers may have stopped for good, and workers left out of
// sends keep reading as long as they are left out.
std::vector<Holder> Writer::unwilling() const {
  std::vector<Holder> unwilling(books_.slots.left_behind().begin(), books_.slots.left_behind().end());
  if (!books_.some_left_out) return unwilling;
  for (const auto& [id, member] : books_.roster.members())
    if (member.welcomed() && !member.owed && !member.catch_up() && member.serving < books_.versions.published())
      unwilling.push_back(member.holder());
  return unwilling;
}

void Writer::drop_gone(FleetTurn& turn) {
  for (const SlotId slot : books_.slots.gone()) {
    turn.act(action::DropSlot{slot});
    books_.slots.drop(slot);
    for (auto& [id, member] : books_.roster.members()) {
      member.leases.erase(slot.index);
      member.knows.erase(slot.index);
    }
  }
}

// Writing begins: the version goes to the requested workers that are still there.
void Writer::note(event::Announced& announced, FleetTurn& turn) {
  const Grant& grant = announced.grant;
  const bool single_copy = books_.slots.single_copy();
  books_.versions.use(grant.version);
  if (announced.memory) books_.slots.add_memory(grant.slot, *announced.memory);
  const Publication publication{
      .version = grant.version, .slot = grant.slot, .bytes = books_.layout->bytes(), .digest = std::nullopt};
  const std::vector<WorkerId> owed = books_.roster.still_addressed(grant.to);  // empty if all have left
  std::vector<Member*> told;
  std::vector<Round::WorkerIdentity> workers;
  for (const WorkerId id : owed) {
    Member& member = *books_.roster.find(id);
    if (!books_.roster.is_newer_for(member, grant.version) || books_.roster.catches_up(member)) continue;
    told.push_back(&member);
    workers.push_back({id, member.name(), member.group()});
  }
  InFlightVersion& sent = books_.versions.begin(Round(publication, std::move(workers),
                                                      {.single_copy = single_copy,
                                                       .delivers = books_.rules.delivers,
                                                       .behind = books_.rules.delivers_while_written && grant.in_pieces,
                                                       .each = books_.endpoint.commit_each,
                                                       .persists = books_.rules.persists,
                                                       .ahead = books_.decides_ahead()}),
                                                /*is_catch_up=*/false);
  try {
    sent.names = grant.to;
    sent.owed.insert(owed.begin(), owed.end());
    sent.written = !single_copy;  // a single copy is written later, once it may be
    turn.going_on.insert(sent.ticket);
    if (single_copy) books_.limit(sent, announced.limit, turn);
    turn.make_room();  // for KeepAwake
    if (const std::string& warning = books_.slots.spare_warning(); !warning.empty()) books_.warn(warning);
    books_.tell_prepare(told, publication, turn);
  } catch (...) {  // the event comes again
    turn.going_on.erase(sent.ticket);
    books_.versions.end(sent.ticket);
    throw;
  }
  books_.slots.announced();
  if (books_.slots.memory(grant.slot).memory->device != kHost) turn.act(action::KeepAwake{true});
}

}  // namespace bascule::inline v0
