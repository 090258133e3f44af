#include <bascule/sender/fleet/progress.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Progress::note(event::SlotSealed& sealed, FleetTurn& turn) {
  InFlightVersion* const sent = books_.versions.sent();
  if (sent == nullptr || sent->version() != sealed.version) return;
  turn.going_on.insert(sent->ticket);
  sent->written = false;
  sent->torn = books_.slots.single_copy();  // a single copy's previous version is gone
  if (!sent->round.under_way()) return;
  books_.slots.seal(sent->publication().slot, sealed.version);
  sent->round.sealed(sealed.digest);
  books_.limit(*sent, sealed.limit, turn);
  if (books_.versions.delivers(sent->ticket)) books_.leave_time(*sent, turn);  // for the last bytes
}

void Progress::note(event::Abandoned& abandoned, FleetTurn& turn) {
  InFlightVersion* const sent = books_.versions.sent();
  if (sent == nullptr || sent->version() != abandoned.version) return;
  turn.going_on.insert(sent->ticket);
  sent->written = false;
  sent->torn = abandoned.torn;
  sent->round.abort(abandoned.why);
}

void Progress::note(event::Delivered& delivered, FleetTurn& turn) {
  if (const std::optional<SlotId> slot = books_.versions.end_delivery(delivered.ticket)) {
    books_.slots.release(*slot, Versions::deliverer(delivered.ticket));
    turn.writer_waits = true;
  }
  InFlightVersion* const version = books_.versions.find(delivered.ticket);
  if (version == nullptr) return;
  turn.going_on.insert(version->ticket);
  version->moving = false;
  version->round.delivered(delivered.status);
}

void Progress::note(event::Published& published, FleetTurn& turn) {
  InFlightVersion* const version = books_.versions.find(published.ticket);
  if (version == nullptr) return;
  turn.going_on.insert(version->ticket);
  version->moving = false;
  decided(*version, published.status, turn);
  for (; !published.warnings.empty(); published.warnings.pop_back()) books_.warn(published.warnings.back());
}

void Progress::note(event::Persisted& persisted, FleetTurn& turn) {
  InFlightVersion* const version = books_.versions.find(persisted.ticket);
  if (version == nullptr) return;
  turn.going_on.insert(version->ticket);
  version->round.persisted(persisted.status);
}

void Progress::advance(InFlightVersion& version, FleetTurn& turn) {
  Round& round = version.round;
  if (version.is_catch_up && round.deserted()) return catch_ups_.end(version, turn);
  while (true) {
    const Round::Action action = round.next(turn.now);
    try {
      if (!act(action, version, turn)) return;
    } catch (...) {  // before the version has ended: that needs no memory
      round.again(action);
      throw;
    }
  }
}

// Each of these may be done again from the start if there is no memory: its messages are its last step, except for what
// needs none.
bool Progress::act(Round::Action action, InFlightVersion& version, FleetTurn& turn) {
  const Round& round = version.round;
  const Version number = version.version();
  switch (action) {
    case Round::Action::kYielded: turn.writer_waits = true; return true;
    case Round::Action::kDeliver: deliver(version, turn); return true;
    case Round::Action::kAnnounce: announce(version, turn); return true;
    case Round::Action::kAbort:
      if (books_.versions.delivers(version.ticket)) turn.act(action::StopDelivery{version.ticket});
      if (!version.is_catch_up) expect_release(version, round.remaining());
      books_.say(round.remaining(), Abort{.version = number, .torn = version.torn}, turn);
      return true;
    case Round::Action::kDecide: decide(version, turn); return true;
    case Round::Action::kDecided: tell_decided(version, turn); return true;
    case Round::Action::kPersist:
      turn.act(action::Persist{.ticket = version.ticket, .publication = version.publication()});
      return true;
    case Round::Action::kSettle:
      version.is_catch_up ? catch_ups_.end(version, turn) : settle(version, turn);
      return false;
    case Round::Action::kNone:
      if (round.under_way()) return false;
      version.is_catch_up ? catch_ups_.end(version, turn) : finish_abort(version, turn);
      return false;
  }
  return false;
}

void Progress::announce(InFlightVersion& version, FleetTurn& turn) {
  const Round& round = version.round;
  books_.leave_time(version, turn);
  const std::vector<WorkerId> to = round.remaining();
  // A worker that copies may take long to verify. If it stopped meanwhile, it would keep the slot, though it may not
  // have flipped; and beside the copy, the saved turn is nothing.
  const Member* const alone = round.decides_ahead() ? books_.roster.find(to.front()) : nullptr;
  const bool ahead = alone != nullptr && !alone->copies_behind();
  Sealed sealed{.version = version.version(), .digest = version.publication().digest};
  if (ahead) sealed.decided = true;
  books_.say(to, sealed, turn);
  if (ahead) version.round.told_ahead();
}

void Progress::deliver(InFlightVersion& version, FleetTurn& turn) {
  // If it is still being written, the writer's deadline applies.
  if (version.round.phase() == Round::Phase::kDelivering) books_.leave_time(version, turn);
  const SlotId slot = version.publication().slot;
  try {
    books_.slots.lease(slot, Versions::deliverer(version.ticket));  // even if all its workers are lost
    books_.versions.begin_delivery(version.ticket, slot);
    turn.act(action::Deliver{.ticket = version.ticket,
                             .publication = version.publication(),
                             .slot = books_.slots.memory(slot),
                             .to = version.round.remaining()});
  } catch (...) {  // no Delivered would come
    books_.versions.end_delivery(version.ticket);
    books_.slots.release(slot, Versions::deliverer(version.ticket));
    throw;
  }
  version.moving = true;
}

// Enough workers are prepared. Once the scheme has also published the version, nothing aborts it. Publishing may take
// as long as a disk takes; meanwhile the fleet continues, and notices workers that die.
void Progress::decide(InFlightVersion& version, FleetTurn& turn) {
  if (version.is_catch_up) {
    version.round.decided(absl::OkStatus());
  } else if (books_.rules.publishes) {
    turn.act(action::Publish{.ticket = version.ticket, .publication = version.publication()});
    version.moving = true;
  } else {
    decided(version, absl::OkStatus(), turn);
  }
}

void Progress::decided(InFlightVersion& version, const absl::Status& status, FleetTurn& turn) {
  version.round.decided(status);
  if (!status.ok()) return;
  // With commit=each, workers that are not prepared yet keep their limit. It may have passed during the decision.
  if (const auto at = version.round.next_deadline()) books_.wake_at(*at, turn);
  books_.slots.publish(version.publication());
  books_.versions.publish(version.version());
  books_.some_left_out = !version.names.empty();
  // A version to all is also due to workers that joined meanwhile and caught up with the previous version.
  for (auto& [id, member] : books_.roster.members())
    if (version.names.empty() || version.owed.contains(id)) member.owed = true;
}

// Each worker has flip_timeout from when it is told.
void Progress::tell_decided(InFlightVersion& version, FleetTurn& turn) {
  const Limit limit = Limit::flip(books_.endpoint, turn.now);
  version.round.limit_acks(limit);
  books_.wake_at(limit.until, turn);
  if (!version.round.was_told_ahead()) books_.say(version.round.to_tell(), Decided{.version = version.version()}, turn);
}

// ---- its end ----

void Progress::settle(const InFlightVersion& sent, FleetTurn& turn) {
  SendReport report = report_of(sent);
  report.warnings = books_.warnings();
  books_.attendance.complete(report, sent.names, books_.roster);
  // With commit=each: workers that will not flip release it, and then catch up.
  expect_release(sent, sent.round.failed());
  FleetTurn last;
  if (!books_.slots.single_copy())
    books_.say(sent.round.failed(), Abort{.version = sent.version(), .torn = false}, last);
  const bool to_all = sent.names.empty();
  end(sent, std::move(report), std::move(last), turn);
  books_.reported();
  const auto& settled = std::get<action::Settle>(turn.actions.back());
  if (to_all) books_.attendance.reported(*settled.report, books_.roster);
}

SendReport Progress::report_of(const InFlightVersion& sent) const {
  using Phase = Round::Phase;
  const Round& round = sent.round;
  SendReport report;
  report.epoch = books_.rules.epoch;
  report.version = sent.version();
  report.bytes = sent.publication().bytes;
  report.digest = sent.publication().digest;
  report.seconds.deliver = round.seconds(Phase::kDelivering, Phase::kPreparing);
  report.seconds.prepare = round.seconds(Phase::kPreparing, Phase::kCommitting);
  report.seconds.commit = round.seconds(Phase::kCommitting, Phase::kSettled);
  report.seconds.persist = round.persist_seconds();
  report.persisted = round.persist_status();
  report.workers = round.reports();
  for (const auto& [id, member] : books_.roster.members()) {
    const bool came_later = sent.names.empty() && member.welcomed() && !sent.owed.contains(id);
    if (came_later || (sent.owed.contains(id) && !round.has(id)))
      report.workers.push_back({.worker = member.name(), .state = WorkerState::kCatchingUp, .error = absl::OkStatus()});
  }
  return report;
}

// The slot is free again once neither the public thread nor the scheme has it.
void Progress::finish_abort(const InFlightVersion& sent, FleetTurn& turn) {
  if (sent.written || sent.moving) return;
  FleetTurn last;
  last.warn_of_sender(cat("version ", sent.version(), " was aborted: ", message_of(sent.round.why_aborted())));
  const SlotId slot = sent.publication().slot;
  const bool torn = sent.torn;
  end(sent, sent.round.why_aborted(), std::move(last), turn);
  books_.slots.abort(slot, torn);
}

// The last step that needs memory is act_all(). `last` comes before the report.
void Progress::end(const InFlightVersion& sent, absl::StatusOr<SendReport> report, FleetTurn last, FleetTurn& turn) {
  last.act(action::KeepAwake{false});
  last.act(action::Settle{.version = sent.version(), .report = std::move(report)});
  catch_ups_.look_at_all();
  turn.act_all(std::move(last.actions));
  books_.versions.end(sent.ticket);
  turn.writer_waits = true;
}

// These workers' leases end with their `released` message or, without one, when they leave. On a single copy they had
// their lease before, and keep it.
void Progress::expect_release(const InFlightVersion& sent, const std::vector<WorkerId>& workers) {
  if (books_.slots.single_copy()) return;
  for (const WorkerId id : workers)
    if (Member* member = books_.roster.find(id); member != nullptr && !member->releasing)
      member->releasing = sent.publication().slot;
}

}  // namespace bascule::inline v0
