// Versions on their way: the round that the public thread began, and one catch-up for each worker that is
// behind. I/O thread.
#include <algorithm>

#include <boost/asio/post.hpp>

#include "sender/coordinator.h"
#include "transport/text.h"

namespace bascule {

void Coordinator::tell(const Round& round, const Message& message) {
  for (const WorkerId id : round.remaining())
    if (Member* member = find(id)) member->channel->send(message);
}

// Gives the public thread the slot that it waits for, as soon as there is one.
void Coordinator::try_begin() {
  if (!ring_ || round_) return;
  const std::lock_guard lock(mutex_);
  if (!shared_.begin_wanted) return;
  const std::optional<SlotId> slot = ring_->begin();
  if (!slot) {
    shared_.holders = names_of(ring_->holders());
    return;
  }
  Publication publication{.version = ++last_version_, .slot = *slot, .bytes = layout_->bytes(), .digest = std::nullopt};
  if (absl::Status recorded = lock_.record(publication.version); !recorded.ok()) {
    ring_->abort(*slot);
    shared_.begun = recorded;
  } else {
    std::vector<Round::Participant> workers;
    for (const auto& member : members_)
      if (member->stage == Member::Stage::kWelcomed && member->addressable())
        workers.push_back({member->id, member->name()});
    round_ = std::make_unique<Round>(publication, std::move(workers));
    writer_busy_ = true;
    for (const WorkerId id : round_->remaining()) ring_->lease(*slot, find(id)->hello.instance);
    tell(*round_,
         Prepare{.version = publication.version, .slot = *slot, .bytes = publication.bytes, .offer = std::nullopt});
    shared_.begun = publication;
  }
  shared_.begin_wanted = false;
  changed_.notify_all();
}

void Coordinator::start_catch_up(Member& member) {
  if (!ring_ || member.stage != Member::Stage::kWelcomed || member.catch_up) return;
  const std::optional<SlotId> newest = ring_->newest();
  if (!newest || member.serving >= ring_->version(*newest) || member.releasing == newest) return;
  if (round_ && round_->under_way()) {
    const std::vector<WorkerId> taking_part = round_->remaining();
    if (std::ranges::find(taking_part, member.id) != taking_part.end()) return;
  }
  const Publication publication{.version = ring_->version(*newest),
                                .slot = *newest,
                                .bytes = layout_->bytes(),
                                .digest = slot_digests_[newest->index]};
  member.catch_up = std::make_unique<Round>(publication, std::vector<Round::Participant>{{member.id, member.name()}});
  member.catch_up_until = Clock::now() + absl::ToChronoNanoseconds(endpoint_.timeout);
  arm_round_timer(member.catch_up_until);
  ring_->lease(*newest, member.hello.instance);
  member.channel->send(
      Prepare{.version = publication.version, .slot = *newest, .bytes = publication.bytes, .offer = std::nullopt});
  member.catch_up->sealed(publication.digest);
  advance(*member.catch_up, &member);
}

void Coordinator::catch_up_all() {
  std::vector<WorkerId> ids;
  for (const auto& member : members_) ids.push_back(member->id);
  for (const WorkerId id : ids)
    if (Member* member = find(id)) start_catch_up(*member);
}

// Does whatever a round asks for, until it asks for nothing. `catching_up` is the member whose own round it
// is, or null.
void Coordinator::advance(Round& round, Member* catching_up) {
  while (true) {
    switch (round.next()) {
      case Round::Action::kDeliver: deliver(round, catching_up); break;
      case Round::Action::kAnnounce:
        tell(round, Sealed{.version = round.publication().version, .digest = round.publication().digest});
        break;
      case Round::Action::kAbort: tell(round, Abort{.version = round.publication().version}); break;
      case Round::Action::kCommit: decide(round, catching_up); break;
      case Round::Action::kSettle: return settle(round, catching_up);
      case Round::Action::kNone:
        if (catching_up == nullptr) return finish_abort();
        if (round.phase() == Round::Phase::kAborted) {
          // One failure is tried again once the worker has released the slot, or that word would end the lease of the
          // second try; the second failure in a row has evicted it already.
          catching_up->releasing = round.publication().slot;
          catching_up->catch_up.reset();
          start_catch_up(*catching_up);  // a newer version may have been published meanwhile
        }
        return;
    }
  }
}

void Coordinator::deliver(Round& round, Member* catching_up) {
  const Version version = round.publication().version;
  const std::optional<WorkerId> only = catching_up ? std::optional(catching_up->id) : std::nullopt;
  if (!only) delivery_busy_ = true;
  delivery_->submit({.publication = round.publication(),
                     .workers = round.remaining(),
                     .deadline = Deadline(catching_up ? catching_up->catch_up_until : round_until_),
                     .done = [this, version, only](absl::Status status) {
                       boost::asio::post(io_, [this, version, only, status = std::move(status)] {
                         if (!only) delivery_busy_ = false;
                         Member* member = only ? find(*only) : nullptr;
                         if (only && (member == nullptr || !member->catch_up)) return;
                         Round* round = only ? member->catch_up.get() : round_.get();
                         if (round == nullptr || round->publication().version != version) return;
                         round->delivered(status);
                         advance(*round, member);
                       });
                     }});
}

// Every worker left is prepared: from here on nothing aborts.
void Coordinator::decide(Round& round, Member* catching_up) {
  const Publication& publication = round.publication();
  const Clock::time_point until = Clock::now() + absl::ToChronoNanoseconds(endpoint_.flip_timeout);
  if (catching_up != nullptr) {
    catching_up->catch_up_until = until;
  } else {
    round_until_ = until;
    slot_digests_[publication.slot.index] = publication.digest;
    ring_->publish(publication.slot);
    published_version_.store(publication.version, std::memory_order_relaxed);
  }
  arm_round_timer(until);
  tell(round, Commit{.version = publication.version});
}

void Coordinator::settle(Round& round, Member* catching_up) {
  if (catching_up != nullptr) {
    catching_up->catch_up.reset();
    start_catch_up(*catching_up);  // a newer version may have been published meanwhile
    return share();
  }
  using Phase = Round::Phase;
  SendReport report;
  report.epoch = epoch_;
  report.version = round.publication().version;
  report.bytes = round.publication().bytes;
  report.digest = round.publication().digest;
  report.seconds.deliver = round.seconds(Phase::kSealed, Phase::kPreparing);
  report.seconds.prepare = round.seconds(Phase::kPreparing, Phase::kCommitting);
  report.seconds.commit = round.seconds(Phase::kCommitting, Phase::kSettled);
  report.workers = round.reports();
  const std::vector<WorkerId> took_part = round.remaining();
  for (const auto& member : members_)
    if (member->stage == Member::Stage::kWelcomed && std::ranges::find(took_part, member->id) == took_part.end())
      report.workers.push_back(
          {.worker = member->name(), .state = WorkerState::kCatchingUp, .error = absl::OkStatus()});
  round_.reset();
  catch_up_all();
  share();
  {
    const std::lock_guard lock(mutex_);
    shared_.settled = std::move(report);
  }
  changed_.notify_all();
  try_begin();
}

// The end of an aborted round: its slot is free again once neither the public thread nor the delivery thread
// has it.
void Coordinator::finish_abort() {
  if (!round_ || round_->phase() != Round::Phase::kAborted || writer_busy_ || delivery_busy_) return;
  const std::unique_ptr<Round> round = std::move(round_);
  ring_->abort(round->publication().slot);
  log(cat("version ", round->publication().version, " was aborted: ", message_of(round->why_aborted())));
  {
    const std::lock_guard lock(mutex_);
    shared_.settled = round->why_aborted();
  }
  changed_.notify_all();
  catch_up_all();
  try_begin();
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
  std::vector<std::pair<WorkerId, absl::Status>> late;
  const auto why = [&](const Round& round) {
    return deadline_exceeded(
        "version ", round.publication().version, ": no ",
        round.phase() == Round::Phase::kCommitting ? "ack" : "word that it is prepared", " within ",
        absl::FormatDuration(round.phase() == Round::Phase::kCommitting ? endpoint_.flip_timeout : endpoint_.timeout));
  };
  if (round_ && round_->under_way() && round_until_ <= now) {
    for (const WorkerId id : round_->late()) late.emplace_back(id, why(*round_));
    if (round_->phase() == Round::Phase::kDelivering)
      round_->abort(deadline_exceeded("deliver version ", round_->publication().version, ": not done within ",
                                      absl::FormatDuration(endpoint_.timeout)));
    advance(*round_, nullptr);
  }
  for (const auto& member : members_)
    if (member->catch_up && member->catch_up_until <= now) late.emplace_back(member->id, why(*member->catch_up));
  for (auto& [id, status] : late) evict(id, std::move(status));

  std::optional<Clock::time_point> next;
  const auto earlier = [&](Clock::time_point at) { next = next ? std::min(*next, at) : at; };
  if (round_ && round_->under_way() && round_->phase() != Round::Phase::kWriting && round_until_ > now)
    earlier(round_until_);
  for (const auto& member : members_)
    if (member->catch_up) earlier(member->catch_up_until);
  if (next) arm_round_timer(*next);
}

}  // namespace bascule
