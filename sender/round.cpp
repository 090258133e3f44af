#include "sender/round.h"

#include <algorithm>
#include <utility>

#include "transport/text.h"

namespace bascule {

Round::Round(const Publication& publication, std::vector<Participant> workers, Rules rules)
    : publication_(publication), rules_(rules) {
  enter(Phase::kWriting);
  for (Participant& who : workers) join(std::move(who));
}

void Round::join(Participant who) {
  if (phase_ != Phase::kWriting) return;
  Worker& worker = workers_.emplace_back();
  worker.report.worker = who.name;
  worker.who = std::move(who);
  told_ = false;
}

void Round::enter(Phase phase) {
  phase_ = phase;
  told_ = false;
  entered_.emplace(phase, Clock::now());
}

Round::Worker* Round::find(WorkerId id) {
  const auto found = std::ranges::find_if(workers_, [id](const Worker& worker) { return worker.who.id == id; });
  return found == workers_.end() || found->lost ? nullptr : &*found;
}

bool Round::all(bool Worker::*flag) const {
  return std::ranges::all_of(workers_, [flag](const Worker& worker) { return worker.lost || worker.*flag; });
}

bool Round::enough_prepared() const {
  const auto flips = [this](const Worker& worker) { return !worker.done() && worker.prepared && may_flip(worker); };
  return all(&Worker::prepared) || (rules_.each && std::ranges::any_of(workers_, flips));
}

bool Round::yielded() const { return phase_ == Phase::kWriting && rules_.in_place && all(&Worker::ready); }

bool Round::settled() const { return std::ranges::all_of(workers_, &Worker::done) && (!rules_.persists || persisted_); }

// All ranks of its group are prepared, too.
bool Round::may_flip(const Worker& worker) const {
  return worker.who.group.empty() || std::ranges::all_of(workers_, [&](const Worker& rank) {
           return rank.who.group != worker.who.group || rank.lost || rank.prepared;
         });
}

bool Round::find_to_commit() {
  to_commit_.clear();
  for (Worker& worker : workers_) {
    if (worker.lost || worker.failed || !worker.prepared || worker.told || !may_flip(worker)) continue;
    worker.told = true;
    to_commit_.push_back(worker.who.id);
  }
  return !to_commit_.empty();
}

void Round::sealed(std::optional<Digest> digest) {
  if (phase_ != Phase::kWriting) return;
  publication_.digest = digest;
  enter(Phase::kSealed);
}

void Round::ready(WorkerId id) {
  if (Worker* worker = find(id)) worker->ready = true;
}

void Round::delivered(const absl::Status& status) {
  if (phase_ != Phase::kDelivering) return;
  if (!status.ok()) return abort(annotate(status, cat("deliver version ", publication_.version)));
  enter(Phase::kPreparing);
}

void Round::prepared(WorkerId id) {
  // Before kPreparing there is nothing to verify; after it only a worker that was given longer (each) answers.
  Worker* worker = find(id);
  if (worker != nullptr && !worker->failed && phase_ >= Phase::kPreparing && under_way()) worker->prepared = true;
}

void Round::failed(WorkerId id, std::string_view why) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->told || !under_way() || (phase_ >= Phase::kDeciding && !rules_.each)) return;
  const absl::Status error = absl::AbortedError(
      cat("worker ", worker->who.name, " could not prepare version ", publication_.version, ": ", why));
  // A group is in a version with all its ranks or with none.
  for (Worker& rank : workers_) {
    if (rank.lost || (&rank != worker && (rank.who.group.empty() || rank.who.group != worker->who.group))) continue;
    rank.failed = true;
    rank.report.state = WorkerState::kFailed;
    rank.report.error = error;
  }
  if (!rules_.each) return abort(error);
  abort_if_hopeless();
}

// With each: nobody is left who could prepare it.
void Round::abort_if_hopeless() {
  const auto out = [](const Worker& worker) { return worker.lost || worker.failed; };
  const auto failed = std::ranges::find_if(workers_, &Worker::failed);
  if (failed != workers_.end() && std::ranges::all_of(workers_, out)) abort(failed->report.error);
}

void Round::decided(const absl::Status& status) {
  if (phase_ != Phase::kDeciding) return;
  if (status.ok()) return enter(Phase::kCommitting);
  why_aborted_ = annotate(status, cat("publish version ", publication_.version));
  enter(Phase::kAborted);
}

void Round::acked(WorkerId id, double seconds, double stall_seconds) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->acked || phase_ != Phase::kCommitting) return;
  worker->acked = true;
  worker->report.state = WorkerState::kServing;
  worker->report.seconds = seconds;
  worker->report.stall_seconds = stall_seconds;
}

void Round::persisted(absl::Status status) {
  if (phase_ != Phase::kCommitting) return;
  persisted_ = true;
  persist_status_ = std::move(status);
  persist_seconds_ = seconds_between(entered_.at(Phase::kCommitting), Clock::now());
}

void Round::lost(WorkerId id, absl::Status why) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->acked) return;
  worker->lost = true;
  worker->report.state = WorkerState::kEvicted;
  worker->report.error = std::move(why);
  if (rules_.each) abort_if_hopeless();
}

void Round::abort(absl::Status why) {
  if (phase_ == Phase::kCommitting || !under_way()) return;
  why_aborted_ = std::move(why);
  enter(Phase::kAborted);
}

Round::Action Round::next() {
  const auto once = [this](Action action) { return std::exchange(told_, true) ? Action::kNone : action; };
  switch (phase_) {
    case Phase::kWriting: return yielded() ? once(Action::kYielded) : Action::kNone;
    case Phase::kSealed:
      if (!all(&Worker::ready)) return Action::kNone;
      enter(rules_.delivers ? Phase::kDelivering : Phase::kPreparing);
      return rules_.delivers ? Action::kDeliver : once(Action::kAnnounce);
    case Phase::kPreparing:
      if (!told_) return once(Action::kAnnounce);
      if (!enough_prepared()) return Action::kNone;
      enter(Phase::kDeciding);
      return Action::kDecide;
    case Phase::kCommitting:
      if (find_to_commit()) return Action::kCommit;
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

bool Round::was_told(WorkerId id) const {
  return std::ranges::any_of(workers_, [id](const Worker& worker) { return worker.who.id == id && worker.told; });
}

std::vector<WorkerId> Round::late() const {
  const auto is_late = [this](const Worker& worker) {
    switch (phase_) {
      case Phase::kWriting: return rules_.in_place && !worker.ready;
      case Phase::kSealed: return !worker.ready;
      case Phase::kPreparing: return !worker.prepared && !worker.failed;
      case Phase::kCommitting: return !worker.done();
      default: return false;
    }
  };
  std::vector<WorkerId> ids;
  for (const Worker& worker : workers_)
    if (!worker.lost && is_late(worker)) ids.push_back(worker.who.id);
  return ids;
}

std::vector<WorkerReport> Round::reports() const {
  std::vector<WorkerReport> reports;
  for (const Worker& worker : workers_) reports.push_back(worker.report);
  return reports;
}

double Round::seconds(Phase from, Phase to) const {
  const auto begin = entered_.find(from), end = entered_.find(to);
  return begin == entered_.end() || end == entered_.end() ? 0 : seconds_between(begin->second, end->second);
}

}  // namespace bascule
