#include "sender/round.h"

#include <algorithm>
#include <utility>

#include "transport/text.h"

namespace bascule {

Round::Round(const Publication& publication, std::vector<Participant> workers) : publication_(publication) {
  for (Participant& who : workers) {
    Worker worker;
    worker.report.worker = who.name;
    worker.who = std::move(who);
    workers_.push_back(std::move(worker));
  }
  enter(Phase::kWriting);
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
  Worker* worker = find(id);
  if (worker != nullptr && phase_ == Phase::kPreparing) worker->prepared = true;  // earlier there is nothing to verify
}

void Round::failed(WorkerId id, std::string_view why) {
  Worker* worker = find(id);
  if (worker == nullptr || phase_ == Phase::kCommitting || !under_way()) return;
  worker->failed = true;
  worker->report.state = WorkerState::kFailed;
  worker->report.error = absl::AbortedError(
      cat("worker ", worker->who.name, " could not prepare version ", publication_.version, ": ", why));
  abort(worker->report.error);
}

void Round::acked(WorkerId id, double seconds, double stall_seconds) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->acked || phase_ != Phase::kCommitting) return;
  worker->acked = true;
  worker->report.state = WorkerState::kServing;
  worker->report.seconds = seconds;
  worker->report.stall_seconds = stall_seconds;
}

void Round::lost(WorkerId id, absl::Status why) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->acked) return;
  worker->lost = true;
  worker->report.state = WorkerState::kEvicted;
  worker->report.error = std::move(why);
}

void Round::abort(absl::Status why) {
  if (phase_ == Phase::kCommitting || !under_way()) return;
  why_aborted_ = std::move(why);
  enter(Phase::kAborted);
}

Round::Action Round::next() {
  switch (phase_) {
    case Phase::kSealed:
      if (!all(&Worker::ready)) return Action::kNone;
      enter(Phase::kDelivering);
      return Action::kDeliver;
    case Phase::kPreparing:
      if (!std::exchange(told_, true)) return Action::kAnnounce;
      if (!all(&Worker::prepared)) return Action::kNone;
      enter(Phase::kCommitting);
      return Action::kCommit;
    case Phase::kCommitting:
      if (!all(&Worker::acked)) return Action::kNone;
      enter(Phase::kSettled);
      return Action::kSettle;
    case Phase::kAborted: return std::exchange(told_, true) ? Action::kNone : Action::kAbort;
    default: return Action::kNone;
  }
}

std::vector<WorkerId> Round::remaining() const {
  std::vector<WorkerId> ids;
  for (const Worker& worker : workers_)
    if (!worker.lost) ids.push_back(worker.who.id);
  return ids;
}

std::vector<WorkerId> Round::late() const {
  bool Worker::*flag = phase_ == Phase::kSealed       ? &Worker::ready
                       : phase_ == Phase::kPreparing  ? &Worker::prepared
                       : phase_ == Phase::kCommitting ? &Worker::acked
                                                      : nullptr;
  std::vector<WorkerId> ids;
  for (const Worker& worker : workers_)
    if (flag != nullptr && !worker.lost && !(worker.*flag)) ids.push_back(worker.who.id);
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
