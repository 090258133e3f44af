// Fleet: versions on their way, from the seal to the last ack.
#include <algorithm>
#include <utility>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// Holds the slot of a delivery. Receivers' numbers are random: they do not lie at the end of all numbers.
Holder deliverer(Ticket ticket) { return ~ticket; }

}  // namespace

void Fleet::note(event::SlotSealed& sealed) {
  InFlightVersion* const sent = versions_.sent();
  if (sent == nullptr || sent->version() != sealed.version) return;
  sent->written = false;
  sent->torn = slots_.single_copy();  // what a single copy held before is gone
  going_on_.insert(sent->ticket);
  if (!sent->round.under_way()) return;
  slots_.seal(sent->publication().slot, sealed.version);
  sent->round.sealed(sealed.digest);
  wait_until(*sent, sealed.deadline);
}

void Fleet::note(event::Abandoned& abandoned) {
  InFlightVersion* const sent = versions_.sent();
  if (sent == nullptr || sent->version() != abandoned.version) return;
  sent->written = false;
  sent->torn = abandoned.torn;
  sent->round.abort(abandoned.why);
  going_on_.insert(sent->ticket);
}

void Fleet::note(event::Delivered& delivered) {
  if (const auto from = delivered_from_.extract(delivered.ticket)) {
    slots_.release(from.mapped(), deliverer(delivered.ticket));
    writer_waits_ = true;
  }
  InFlightVersion* const version = versions_.find(delivered.ticket);
  if (version == nullptr) return;
  version->moving = false;
  version->round.delivered(delivered.status);
  going_on_.insert(version->ticket);
}

void Fleet::note(event::Published& published) {
  InFlightVersion* const version = versions_.find(published.ticket);
  if (version == nullptr) return;
  version->moving = false;
  warnings_.insert(warnings_.end(), published.warnings.begin(), published.warnings.end());
  decided(*version, published.status);
  going_on_.insert(version->ticket);
}

void Fleet::note(event::Persisted& persisted) {
  InFlightVersion* const version = versions_.find(persisted.ticket);
  if (version == nullptr) return;
  version->round.persisted(persisted.status);
  going_on_.insert(version->ticket);
}

// Does whatever a version's round asks for, until it asks for nothing.
void Fleet::advance(InFlightVersion& version) {
  Round& round = version.round;
  if (version.is_catch_up && round.deserted()) return end_catch_up(version);
  const Version number = version.version();
  while (true) {
    switch (round.next(now_)) {
      case Round::Action::kYielded: writer_waits_ = true; break;
      case Round::Action::kDeliver: deliver(version); break;
      case Round::Action::kAnnounce:
        leave_time(version);
        say(round.remaining(), Sealed{.version = number, .digest = version.publication().digest});
        break;
      case Round::Action::kAbort:
        if (delivered_from_.contains(version.ticket)) act(action::StopDelivery{version.ticket});
        if (!version.is_catch_up) expect_release(version, round.remaining());
        say(round.remaining(), Abort{.version = number, .torn = version.torn});
        break;
      case Round::Action::kDecide: decide(version); break;
      case Round::Action::kCommit: say(round.to_commit(), Commit{.version = number}); break;
      case Round::Action::kPersist:
        act(action::Persist{.ticket = version.ticket, .publication = version.publication()});
        break;
      case Round::Action::kSettle: return version.is_catch_up ? end_catch_up(version) : settle(version);
      case Round::Action::kNone:
        if (version.is_catch_up && !round.under_way()) return end_catch_up(version);
        if (!version.is_catch_up && !round.under_way()) finish_abort(version);
        return;
    }
  }
}

void Fleet::deliver(InFlightVersion& version) {
  if (version.round.phase() == Round::Phase::kDelivering) leave_time(version);  // else it has that of the writer
  version.moving = true;
  const SlotId slot = version.publication().slot;
  slots_.lease(slot, deliverer(version.ticket));  // also if all its workers are lost
  delivered_from_[version.ticket] = slot;
  act(action::Deliver{.ticket = version.ticket,
                      .publication = version.publication(),
                      .slot = slots_.memory(slot),
                      .to = version.round.remaining()});
}

// Enough workers are prepared. Once the scheme has published the version too, nothing aborts. That may take as long as
// a disk takes; meanwhile the fleet goes on, and notices workers that die.
void Fleet::decide(InFlightVersion& version) {
  if (version.is_catch_up) {
    version.round.decided(absl::OkStatus());
    wait_until(version, now_ + absl::ToChronoNanoseconds(endpoint_.flip_timeout));
  } else if (rules_.publishes) {
    version.moving = true;
    act(action::Publish{.ticket = version.ticket, .publication = version.publication()});
  } else {
    decided(version, absl::OkStatus());
  }
}

void Fleet::decided(InFlightVersion& version, const absl::Status& status) {
  version.round.decided(status);
  if (!status.ok()) return;
  const auto flip = absl::ToChronoNanoseconds(endpoint_.flip_timeout);
  // With commit=each, workers that are not prepared yet keep the time that they had.
  wait_until(version, endpoint_.commit_each ? std::max(now_, version.until) + flip : now_ + flip);
  slots_.publish(version.publication());
  versions_.publish(version.version());
  some_left_out_ = !version.names.empty();
  // A version to all is due also to workers that joined meanwhile and caught up with the version before.
  for (auto& [id, member] : roster_.members())
    if (version.names.empty() || version.owed.contains(id)) member.owed = true;
}

// ---- its end ----

void Fleet::settle(const InFlightVersion& sent) {
  SendReport report = report_of(sent);
  warnings_.clear();
  // With commit=each: workers that will not flip release it, and then catch up.
  expect_release(sent, sent.round.failed());
  if (!slots_.single_copy()) say(sent.round.failed(), Abort{.version = sent.version(), .torn = false});
  act(action::KeepAwake{false});
  act(action::Settle{.version = sent.version(), .report = std::move(report)});
  versions_.end(sent.ticket);
  catch_up_all();
  writer_waits_ = true;
}

SendReport Fleet::report_of(const InFlightVersion& sent) const {
  using Phase = Round::Phase;
  const Round& round = sent.round;
  SendReport report;
  report.epoch = rules_.epoch;
  report.version = sent.version();
  report.bytes = sent.publication().bytes;
  report.digest = sent.publication().digest;
  report.seconds.deliver = round.seconds(Phase::kDelivering, Phase::kPreparing);
  report.seconds.prepare = round.seconds(Phase::kPreparing, Phase::kCommitting);
  report.seconds.commit = round.seconds(Phase::kCommitting, Phase::kSettled);
  report.seconds.persist = round.persist_seconds();
  report.persisted = round.persist_status();
  report.workers = round.reports();
  report.warnings = warnings_;
  for (const auto& [id, member] : roster_.members()) {
    const bool came_later = sent.names.empty() && member.welcomed() && !sent.owed.contains(id);
    if (came_later || (sent.owed.contains(id) && !round.has(id)))
      report.workers.push_back({.worker = member.name(), .state = WorkerState::kCatchingUp, .error = absl::OkStatus()});
  }
  return report;
}

// Their leases end with their `released`, or, if they leave without one, when they leave. On a single copy they had
// their lease before, and keep it.
void Fleet::expect_release(const InFlightVersion& sent, const std::vector<WorkerId>& workers) {
  if (slots_.single_copy()) return;
  for (const WorkerId id : workers)
    if (Member* member = roster_.find(id); member != nullptr && !member->releasing)
      member->releasing = sent.publication().slot;
}

// The slot is free again once neither the public thread nor the scheme has it.
void Fleet::finish_abort(const InFlightVersion& sent) {
  if (sent.written || sent.moving) return;
  act(action::KeepAwake{false});
  slots_.abort(sent.publication().slot, sent.torn);
  log(cat("version ", sent.version(), " was aborted: ", message_of(sent.round.why_aborted())));
  act(action::Settle{.version = sent.version(), .report = sent.round.why_aborted()});
  versions_.end(sent.ticket);
  catch_up_all();
  writer_waits_ = true;
}

}  // namespace bascule::inline v0
