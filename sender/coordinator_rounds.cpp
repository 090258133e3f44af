// Versions on their way: the round that the public thread began, and one catch-up for each worker that is
// behind. I/O thread.
#include <algorithm>

#include <boost/asio/post.hpp>

#include "sender/coordinator.h"
#include "transport/text.h"

namespace bascule {

void Coordinator::tell(const std::vector<WorkerId>& workers, const Message& message) {
  for (const WorkerId id : workers)
    if (Member* member = find(id)) say(*member, message);
}

void Coordinator::say(Member& member, const Message& message, const std::vector<int>& descriptors) {
  if (trace_) trace_(cat("to ", member.name(), ": ", name_of(message)));
  member.channel->send(message, descriptors);
}

// Brings a worker that is behind to the newest version; where it is one of a group, all its ranks that are.
void Coordinator::start_catch_up(Member& member) {
  if (!ring_ || member.stage != Member::Stage::kWelcomed) return;
  const std::optional<SlotId> newest = ring_->newest();
  if (!newest) return;
  const Publication publication{.version = ring_->version(*newest),
                                .slot = *newest,
                                .bytes = layout_->bytes(),
                                .digest = slot_digests_[newest->index]};
  const std::vector<WorkerId> taking_part =
      round_ && round_->under_way() ? round_->remaining() : std::vector<WorkerId>();
  std::vector<Member*> behind;
  for (Member* rank : ranks_of(member)) {
    if (rank->stage != Member::Stage::kWelcomed || rank->catch_up || rank->releasing == newest) return;
    if (std::ranges::find(taking_part, rank->id) != taking_part.end()) return;
    if (rank->owed && rank->serving < publication.version) behind.push_back(rank);
  }
  if (behind.empty()) return;
  std::vector<Round::Participant> workers;
  workers.reserve(behind.size());
  for (const Member* rank : behind) workers.push_back({rank->id, rank->name(), rank->group()});
  const auto catch_up = std::make_shared<CatchUp>(
      CatchUp{.round = Round(publication, std::move(workers),
                             {.in_place = false, .delivers = transport_.delivers(), .each = false, .persists = false}),
              .until = Clock::now() + absl::ToChronoNanoseconds(endpoint_.timeout)});
  std::vector<WorkerId> unreachable;
  const std::vector<Holder> holders = ring_->holders_of(*newest);
  for (Member* rank : behind) {
    rank->catch_up = catch_up;
    if (std::ranges::find(holders, rank->hello.instance) == holders.end()) catch_up->leased.insert(rank->id);
    if (!tell_prepare(*rank, publication)) unreachable.push_back(rank->id);
  }
  for (const WorkerId id : unreachable) evict(id, unavailable("its slot could not be offered"));
  if (!unreachable.empty()) return;
  arm_round_timer(catch_up->until);
  catch_up->round.sealed(publication.digest);
  advance(catch_up->round, catch_up.get());
}

void Coordinator::catch_up_all() {
  std::vector<WorkerId> ids;
  for (const auto& member : members_) ids.push_back(member->id);
  for (const WorkerId id : ids)
    if (Member* member = find(id)) start_catch_up(*member);
}

// Who has no room yet for a version that is not the newest any more holds its slot for nothing: whoever writes next
// would wait for it. It is told of the newest instead.
void Coordinator::give_up_idle_catch_ups() {
  std::vector<WorkerId> ids;
  for (const auto& member : members_) ids.push_back(member->id);
  for (const WorkerId id : ids) {
    const Member* member = find(id);
    const std::shared_ptr<CatchUp> catch_up = member != nullptr ? member->catch_up : nullptr;
    if (!catch_up || catch_up->round.phase() != Round::Phase::kSealed) continue;  // sealed: not ready for it
    if (catch_up->round.publication().version >= published_version_.load(std::memory_order_relaxed)) continue;
    catch_up->round.abort(absl::AbortedError("a newer version came before there was room for it"));
    advance(catch_up->round, catch_up.get());
  }
}

// Does whatever a round asks for, until it asks for nothing. `catch_up` is the one whose round it is, or null.
void Coordinator::advance(Round& round, CatchUp* catch_up) {
  while (true) {
    switch (round.next()) {
      case Round::Action::kYielded: let_write(); break;
      case Round::Action::kDeliver:
        leave_time(catch_up);
        deliver(round, catch_up);
        break;
      case Round::Action::kAnnounce:
        leave_time(catch_up);
        tell(round.remaining(), Sealed{.version = round.publication().version, .digest = round.publication().digest});
        break;
      case Round::Action::kAbort:
        if (catch_up == nullptr) expect_release(round, round.remaining());
        tell(round.remaining(), Abort{.version = round.publication().version, .torn = catch_up == nullptr && torn_});
        break;
      case Round::Action::kDecide: decide(round, catch_up); break;
      case Round::Action::kCommit: tell(round.to_commit(), Commit{.version = round.publication().version}); break;
      case Round::Action::kPersist: persist(round); break;
      case Round::Action::kSettle: return settle(round, catch_up);
      case Round::Action::kNone:
        if (catch_up == nullptr) return finish_abort();
        if (round.phase() == Round::Phase::kAborted) end_catch_up(*catch_up);
        return;
    }
  }
}

// Runs on the delivery thread what may take long, and comes back to the round if it is still there.
void Coordinator::deliver(Round& round, CatchUp* catch_up) {
  const Version version = round.publication().version;
  const std::optional<WorkerId> only = catch_up ? std::optional(round.remaining().front()) : std::nullopt;
  if (!only) delivery_busy_ = true;
  delivery_->submit([this, version, only, publication = round.publication(), workers = round.remaining(),
                     deadline = Deadline(catch_up ? catch_up->until : round_until_)] {
    boost::asio::post(io_, [this, version, only, status = transport_.deliver(publication, workers, deadline)] {
      if (!only) delivery_busy_ = false;
      const Member* member = only ? find(*only) : nullptr;
      if (only && (member == nullptr || !member->catch_up)) return;
      const std::shared_ptr<CatchUp> catch_up = member != nullptr ? member->catch_up : nullptr;
      Round* round = catch_up ? &catch_up->round : round_.get();
      if (round == nullptr || round->publication().version != version) return;
      round->delivered(status);
      advance(*round, catch_up.get());
    });
  });
}

void Coordinator::persist(Round& round) {
  delivery_->submit([this, publication = round.publication(),
                     deadline = Deadline(endpoint_.timeout + endpoint_.flip_timeout)] {
    boost::asio::post(io_, [this, version = publication.version, status = transport_.persist(publication, deadline)] {
      if (!round_ || round_->publication().version != version) return;
      round_->persisted(status);
      advance(*round_, nullptr);
    });
  });
}

// Enough workers are prepared. Once the scheme has published it, too, nothing aborts.
void Coordinator::decide(Round& round, CatchUp* catch_up) {
  const Publication& publication = round.publication();
  const Clock::time_point until = Clock::now() + absl::ToChronoNanoseconds(endpoint_.flip_timeout);
  if (catch_up != nullptr) {
    catch_up->until = until;
    round.decided(absl::OkStatus());
    return arm_round_timer(until);
  }
  if (absl::Status published = transport_.publish(publication); !published.ok()) return round.decided(published);
  round.decided(absl::OkStatus());
  // With commit=each those who are not prepared yet keep the time that they had.
  round_until_ = endpoint_.commit_each ? round_until_ + absl::ToChronoNanoseconds(endpoint_.flip_timeout) : until;
  slot_digests_[publication.slot.index] = publication.digest;
  ring_->publish(publication.slot);
  published_version_.store(publication.version, std::memory_order_relaxed);
  // To all: also to who joined meanwhile, and may have caught up with the one before.
  for (const auto& member : members_)
    if (round_for_.empty() || std::ranges::find(round_to_, member->id) != round_to_.end()) member->owed = true;
  arm_round_timer(round_until_);
}

// The end of a catch-up, as it may be. One failure is tried again once the worker has released the slot, or that word
// would end the lease of the second try; the second failure in a row has evicted it already.
void Coordinator::end_catch_up(CatchUp& catch_up) {
  const bool aborted = catch_up.round.phase() == Round::Phase::kAborted;
  const std::vector<WorkerId> ranks = catch_up.round.remaining();
  for (const WorkerId id : ranks) {
    Member* member = find(id);
    if (member == nullptr || member->catch_up.get() != &catch_up) continue;
    if (aborted && catch_up.leased.contains(id)) member->releasing = catch_up.round.publication().slot;
    member->catch_up.reset();
  }
  for (const WorkerId id : ranks)
    if (Member* member = find(id)) start_catch_up(*member);  // a newer version may have been published meanwhile
  try_take();
  share();
}

void Coordinator::settle(Round& round, CatchUp* catch_up) {
  if (catch_up != nullptr) return end_catch_up(*catch_up);
  using Phase = Round::Phase;
  SendReport report;
  report.epoch = epoch_;
  report.version = round.publication().version;
  report.bytes = round.publication().bytes;
  report.digest = round.publication().digest;
  report.seconds.deliver = round.seconds(Phase::kDelivering, Phase::kPreparing);
  report.seconds.prepare = round.seconds(Phase::kPreparing, Phase::kCommitting);
  report.seconds.commit = round.seconds(Phase::kCommitting, Phase::kSettled);
  report.seconds.persist = round.persist_seconds();
  report.persisted = round.persist_status();
  report.workers = round.reports();
  report.warnings = std::exchange(warnings_, {});
  const std::vector<WorkerId> took_part = round.remaining();
  for (const WorkerId id : round_to_)
    if (const Member* member = find(id); member != nullptr && std::ranges::find(took_part, id) == took_part.end())
      report.workers.push_back(
          {.worker = member->name(), .state = WorkerState::kCatchingUp, .error = absl::OkStatus()});
  for (const auto& member : members_)  // who joined meanwhile
    if (round_for_.empty() && member->stage == Member::Stage::kWelcomed &&
        std::ranges::find(round_to_, member->id) == round_to_.end())
      report.workers.push_back(
          {.worker = member->name(), .state = WorkerState::kCatchingUp, .error = absl::OkStatus()});
  // With each: who will not flip lets go of it, and catches up then.
  expect_release(round, round.failed());
  if (endpoint_.slots > 1) tell(round.failed(), Abort{.version = round.publication().version, .torn = false});
  round_.reset();
  awake_.end();
  catch_up_all();
  share();
  const Version version = report.version;
  share_settled(version, std::move(report));
  try_take();
}

// Their leases end with their word; or, where they go without it, then. A single copy is theirs from before.
void Coordinator::expect_release(const Round& round, const std::vector<WorkerId>& workers) {
  for (const WorkerId id : workers)
    if (Member* member = find(id); member != nullptr && endpoint_.slots > 1 && !member->releasing)
      member->releasing = round.publication().slot;
}

// The end of an aborted round: its slot is free again once neither the public thread nor the delivery thread
// has it.
void Coordinator::finish_abort() {
  if (!round_ || round_->phase() != Round::Phase::kAborted || writer_busy_ || delivery_busy_) return;
  const std::unique_ptr<Round> round = std::move(round_);
  awake_.end();
  torn_ ? ring_->spoil(round->publication().slot) : ring_->abort(round->publication().slot);
  log(cat("version ", round->publication().version, " was aborted: ", message_of(round->why_aborted())));
  share_settled(round->publication().version, round->why_aborted());
  catch_up_all();
  try_take();
}

// For what begins only now, after others were waited for.
void Coordinator::leave_time(CatchUp* catch_up) {
  const absl::Duration least = std::min(endpoint_.timeout, endpoint_.flip_timeout);
  Clock::time_point& until = catch_up != nullptr ? catch_up->until : round_until_;
  until = std::max(until, Clock::now() + absl::ToChronoNanoseconds(least));
  arm_round_timer(until);
}

// One timer serves all rounds: it fires at the earliest deadline, or before, and is set anew.
void Coordinator::arm_round_timer(Clock::time_point at) {
  if (round_timer_.expiry() > Clock::now() && round_timer_.expiry() <= at) return;
  round_timer_.expires_at(at);
  round_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) on_round_timer();
  });
}

void Coordinator::on_round_timer() {
  const Clock::time_point now = Clock::now();
  std::map<WorkerId, absl::Status> late;
  const auto note = [&](const Round& round) {
    const bool flips = round.phase() == Round::Phase::kCommitting;
    for (const WorkerId id : round.late())
      late.emplace(id, deadline_exceeded("version ", round.publication().version, ": no ",
                                         flips ? "ack" : "word that it is prepared", " within ",
                                         absl::FormatDuration(flips ? endpoint_.flip_timeout : endpoint_.timeout)));
  };
  if (round_ && round_->under_way() && round_until_ <= now) {
    note(*round_);
    if (round_->phase() == Round::Phase::kDelivering)
      round_->abort(deadline_exceeded("deliver version ", round_->publication().version, ": not done within ",
                                      absl::FormatDuration(endpoint_.timeout)));
    advance(*round_, nullptr);
  }
  for (const auto& member : members_) {
    if (!member->catch_up || member->catch_up->until > now) continue;
    const Round& round = member->catch_up->round;
    note(round);
    if (round.phase() == Round::Phase::kDelivering)
      late.emplace(member->id, deadline_exceeded("version ", round.publication().version, " was not delivered within ",
                                                 absl::FormatDuration(endpoint_.timeout)));
  }
  for (auto& [id, status] : late) evict(id, std::move(status));
  if (round_ && round_until_ <= now && round_->yielded() && !writer_busy_) {
    round_->abort(deadline_exceeded("the single copy is still read by ", names_of(in_the_way()), ", who did not ",
                                    "step aside; stop or restart what reads it"));
    advance(*round_, nullptr);
  }

  std::optional<Clock::time_point> next;
  const auto earlier = [&](Clock::time_point at) { next = next ? std::min(*next, at) : at; };
  if (round_ && round_->under_way() && round_until_ > now) earlier(round_until_);
  for (const auto& member : members_)
    if (member->catch_up) earlier(member->catch_up->until);
  if (next) arm_round_timer(*next);
}

}  // namespace bascule
