#include <bascule/sender/fleet/round.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr int kMostLoadMessages = 2;

}  // namespace

Round::Round(const Publication& publication, std::vector<WorkerIdentity> workers, Rules rules)
    : publication_(publication), rules_(rules) {
  workers_.reserve(workers.size());
  flippable_.reserve(workers.size());
  to_tell_.reserve(workers.size());
  groups_.reserve(workers.size());
  for (WorkerIdentity& who : workers) join(std::move(who));
}

void Round::join(WorkerIdentity who) {
  if (phase_ != Phase::kWriting) return;
  const std::size_t place = workers_.size();
  // Everything that needs memory comes first; later steps for this worker then need none.
  flippable_.reserve(place + 1);
  to_tell_.reserve(place + 1);
  Worker worker;
  worker.report.worker = who.name;
  worker.group = group_of(who);
  Group& group = groups_[worker.group];
  group.ranks.reserve(group.ranks.size() + 1);
  const WorkerId id = who.id;
  worker.who = std::move(who);
  workers_.push_back(std::move(worker));
  try {
    places_.insert_or_assign(id, place);
  } catch (...) {
    workers_.pop_back();
    throw;
  }
  group.ranks.push_back(place);
  ++group.unprepared;
  ++unready_, ++unprepared_, ++undone_;
  told_ = false;
}

std::size_t Round::group_of(const WorkerIdentity& who) {
  const std::size_t next = groups_.size();
  groups_.reserve(next + 1);
  const std::size_t group = who.group.empty() ? next : named_.emplace(who.group, next).first->second;
  if (group == next) groups_.emplace_back();
  return group;
}

void Round::enter(Phase phase) {
  phase_ = phase;
  told_ = false;
}

const Round::Worker* Round::find(WorkerId id) const {
  const auto place = places_.find(id);
  return place == places_.end() || workers_[place->second].lost ? nullptr : &workers_[place->second];
}

Round::Worker* Round::find(WorkerId id) { return const_cast<Worker*>(std::as_const(*this).find(id)); }

bool Round::enough_prepared() const {
  const auto flips = [this](std::size_t place) { return !workers_[place].done(); };
  return unprepared_ == 0 || (rules_.each && std::ranges::any_of(flippable_, flips));
}

bool Round::yielded() const { return phase_ == Phase::kWriting && rules_.single_copy && unready_ == 0; }

bool Round::find_to_tell() {
  to_tell_.clear();
  std::ranges::sort(flippable_);
  for (const std::size_t place : flippable_) {
    Worker& worker = workers_[place];
    if (worker.lost || worker.failed || worker.told) continue;
    worker.told = true;
    to_tell_.push_back(worker.who.id);
  }
  flippable_.clear();
  return !to_tell_.empty();
}

// The worker is prepared, or was not and is now lost; in both cases the rest of its group may now be able to flip.
void Round::now_prepared(Worker& worker) {
  --unprepared_;
  Group& group = groups_[worker.group];
  if (--group.unprepared > 0) return;
  for (const std::size_t rank : group.ranks)
    if (workers_[rank].prepared) flippable_.push_back(rank);
}

void Round::end(Worker& worker, bool Worker::*how) {
  const bool done = worker.done(), out = worker.lost || worker.failed;
  worker.*how = true;
  if (!done) --undone_;
  if (!out && (worker.lost || worker.failed)) ++out_;
}

void Round::sealed(std::optional<Digest> digest) {
  if (phase_ != Phase::kWriting) return;
  publication_.digest = digest;
  enter(Phase::kSealed);
}

void Round::ready(WorkerId id) {
  Worker* worker = find(id);
  if (worker == nullptr || std::exchange(worker->ready, true)) return;
  --unready_;
}

void Round::delivered(const absl::Status& status) {
  if (!delivery_begun_ || delivered_ || !under_way()) return;
  if (!status.ok()) abort(annotate(status, cat("deliver version ", publication_.version)));
  delivered_ = status;
  if (status.ok()) end_delivery();
}

// The delivery is over once the last byte has left and the version is also sealed here.
void Round::end_delivery() {
  if (phase_ == Phase::kDelivering && delivered_) enter(Phase::kPreparing);
}

Round::Action Round::begin_delivery() {
  return std::exchange(delivery_begun_, true) ? Action::kNone : Action::kDeliver;
}

void Round::prepared(WorkerId id, const std::optional<BytesRead>& bytes) {
  // Before kPreparing there is nothing to verify; after it, only workers that commit=each gave more time answer.
  Worker* worker = find(id);
  if (worker == nullptr || worker->failed || phase_ < Phase::kPreparing || !under_way()) return;
  if (std::exchange(worker->prepared, true)) return;
  worker->report.bytes = bytes;
  now_prepared(*worker);
}

void Round::failed(WorkerId id, std::string_view why) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->told || !under_way() || (phase_ >= Phase::kDeciding && !rules_.each)) return;
  const absl::Status error = absl::AbortedError(
      cat("worker ", worker->who.name, " could not prepare version ", publication_.version, ": ", why));
  // A group takes part with all its ranks or with none.
  for (const std::size_t place : groups_[worker->group].ranks) {
    Worker& rank = workers_[place];
    if (rank.lost) continue;
    end(rank, &Worker::failed);
    rank.report.state = WorkerState::kFailed;
    rank.report.error = error;
  }
  if (!rules_.each) return abort(error);
  abort_if_hopeless();
}

// With commit=each: no remaining worker could prepare it.
void Round::abort_if_hopeless() {
  if (out_ < workers_.size()) return;
  const auto failed = std::ranges::find_if(workers_, &Worker::failed);
  if (failed != workers_.end()) abort(failed->report.error);
}

void Round::decided(const absl::Status& status) {
  if (phase_ != Phase::kDeciding) return;
  if (status.ok()) return enter(Phase::kCommitting);
  why_aborted_ = annotate(status, cat("publish version ", publication_.version));
  enter(Phase::kAborted);
}

void Round::loading(WorkerId id, const Limit& limit) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->done() || !worker->told || phase_ != Phase::kCommitting) return;
  if (worker->load_messages++ < kMostLoadMessages && limit.until > worker->limit.until) worker->limit = limit;
}

void Round::acked(WorkerId id, double seconds, double stall_seconds) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->acked || phase_ != Phase::kCommitting) return;
  end(*worker, &Worker::acked);
  worker->report.state = WorkerState::kServing;
  worker->report.seconds = seconds;
  worker->report.stall_seconds = stall_seconds;
}

void Round::persisted(absl::Status status) {
  if (phase_ != Phase::kCommitting) return;
  persisted_ = true;
  persist_status_ = std::move(status);
}

void Round::lost(WorkerId id, absl::Status why) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->acked) return;
  if (!worker->ready) --unready_;
  if (!worker->prepared) now_prepared(*worker);
  end(*worker, &Worker::lost);
  ++lost_;
  worker->report.state = WorkerState::kEvicted;
  worker->report.error = std::move(why);
  if (rules_.each) abort_if_hopeless();
}

void Round::abort(absl::Status why) {
  if (phase_ == Phase::kDeciding || phase_ == Phase::kCommitting || !under_way()) return;
  why_aborted_ = std::move(why);
  enter(Phase::kAborted);
}

Round::Action Round::next(Clock::time_point now) noexcept {
  const auto enters = [&] {
    if (!entered(phase_)) entered(phase_) = now;
  };
  if (again_ != Action::kNone) return std::exchange(again_, Action::kNone);
  enters();
  if (persisted_ && !persisted_at_) persisted_at_ = now;
  const Action action = step();
  enters();
  return action;
}

Round::Action Round::step() {
  const auto once = [this](Action action) { return std::exchange(told_, true) ? Action::kNone : action; };
  switch (phase_) {
    case Phase::kWriting:
      if (yielded()) return once(Action::kYielded);
      return rules_.behind && unready_ == 0 ? begin_delivery() : Action::kNone;
    case Phase::kSealed:
      if (unready_ > 0) return Action::kNone;
      enter(rules_.delivers ? Phase::kDelivering : Phase::kPreparing);
      if (!rules_.delivers) return once(Action::kAnnounce);
      end_delivery();
      return phase_ == Phase::kDelivering ? begin_delivery() : once(Action::kAnnounce);
    case Phase::kPreparing:
      if (!told_) return once(Action::kAnnounce);
      if (!enough_prepared()) return Action::kNone;
      enter(Phase::kDeciding);
      return Action::kDecide;
    case Phase::kCommitting:
      if (find_to_tell()) return Action::kDecided;
      if (rules_.persists && !told_) return once(Action::kPersist);
      if (!settled()) return Action::kNone;
      enter(Phase::kSettled);
      return Action::kSettle;
    case Phase::kAborted: return once(Action::kAbort);
    default: return Action::kNone;
  }
}

std::vector<WorkerId> Round::remaining() const {
  std::vector<WorkerId> ids;
  for (const Worker& worker : workers_)
    if (!worker.lost) ids.push_back(worker.who.id);
  return ids;
}

std::vector<WorkerId> Round::failed() const {
  std::vector<WorkerId> ids;
  for (const Worker& worker : workers_)
    if (worker.failed && !worker.lost) ids.push_back(worker.who.id);
  return ids;
}

bool Round::has(WorkerId id) const { return find(id) != nullptr; }

bool Round::was_told(WorkerId id) const {
  const auto place = places_.find(id);
  return place != places_.end() && workers_[place->second].told;
}

bool Round::decides_ahead() const {
  if (!rules_.ahead || workers_.size() - lost_ != 1) return false;
  const auto alone = std::ranges::find(workers_, false, &Worker::lost);
  return alone->who.group.empty() && !alone->failed;
}

bool Round::is_loading(WorkerId id) const {
  const Worker* const worker = find(id);
  return worker != nullptr && !worker->done() && worker->load_messages > 0;
}

bool Round::is_ready(WorkerId id) const {
  const Worker* const worker = find(id);
  return worker != nullptr && worker->ready;
}

// ---- limits ----

void Round::limit_acks(const Limit& limit) {
  for (const WorkerId id : to_tell_)
    if (Worker* const worker = find(id)) worker->limit = limit;
}

const Limit* Round::limit_of(const Worker& worker) const {
  const auto applies = [](bool waits, const Limit& limit) { return waits ? &limit : nullptr; };
  if (worker.lost) return nullptr;
  switch (phase_) {  // until it is ready, a worker that failed is awaited as well
    case Phase::kWriting: return applies(rules_.single_copy && !worker.ready, limit_);
    case Phase::kSealed: return applies(!worker.ready, limit_);
    case Phase::kPreparing: return applies(!worker.prepared && !worker.failed, limit_);
    case Phase::kCommitting:
      if (worker.done()) return nullptr;
      return worker.told ? &worker.limit : applies(!worker.prepared, limit_);
    default: return nullptr;
  }
}

const Limit* Round::limit_of(WorkerId id) const {
  const Worker* const worker = find(id);
  return worker == nullptr ? nullptr : limit_of(*worker);
}

std::vector<WorkerId> Round::late(Clock::time_point now) const {
  std::vector<WorkerId> ids;
  for (const Worker& worker : workers_)
    if (const Limit* const limit = limit_of(worker); limit != nullptr && limit->until <= now)
      ids.push_back(worker.who.id);
  return ids;
}

std::optional<Clock::time_point> Round::next_deadline(Clock::time_point after) const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](const Limit& limit) {
    if (limit.until > after && limit.until != Clock::time_point::max())
      next = next ? std::min(*next, limit.until) : limit.until;
  };
  // The scheme is awaited in kDelivering; a single copy's trainer, or readers that left, in kWriting.
  if (phase_ == Phase::kWriting || phase_ == Phase::kDelivering) {
    consider(limit_);
  } else {
    for (const Worker& worker : workers_)
      if (const Limit* const limit = limit_of(worker)) consider(*limit);
  }
  return next;
}

std::vector<WorkerReport> Round::reports() const {
  std::vector<WorkerReport> reports;
  for (const Worker& worker : workers_) reports.push_back(worker.report);
  return reports;
}

double Round::seconds(Phase from, Phase to) const {
  const auto begin = entered(from), end = entered(to);
  return begin && end ? seconds_between(*begin, *end) : 0;
}

double Round::persist_seconds() const {
  const auto decided = entered(Phase::kCommitting);
  return decided && persisted_at_ ? seconds_between(*decided, *persisted_at_) : 0;
}

}  // namespace bascule::inline v0
