// Round: one version on its way to a set of workers, as a two-phase commit. Pure bookkeeping: events come in,
// and next() says what to do; the coordinator does it.
//
//   state       leaves it when                                   to
//   writing     sealed()                                         sealed
//   sealed      every worker left is ready                       delivering, or preparing where nothing is delivered
//   delivering  delivered(OK) / delivered(error)                 preparing / aborted
//   preparing   every worker left is prepared (each: one is,     deciding
//               and all ranks of its group)
//               one failed (each: all did)                       aborted
//   deciding    decided(OK) / decided(error)                     committing / aborted
//   committing  every worker left has acked or, with each,       settled
//               failed; and the disk has it, where it must
//
// Nothing aborts from committing on. A worker that is lost (dead, silent, late) leaves the round; the rest go on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sender/report.h"
#include "transport/deadline.h"
#include "transport/scheme.h"

namespace bascule {

class Round {
 public:
  enum class Phase { kWriting, kSealed, kDelivering, kPreparing, kDeciding, kCommitting, kSettled, kAborted };
  enum class Action { kNone, kYielded, kDeliver, kAnnounce, kDecide, kCommit, kPersist, kSettle, kAbort };

  struct Participant {
    WorkerId id = 0;
    std::string name;
    std::string group{};  // whose ranks flip together; empty: none
  };
  struct Rules {
    bool in_place = false;  // it is written where it is read: all must be ready before writing begins
    bool delivers = false;  // the scheme moves the bytes
    bool each = false;      // a worker, or a group of them, flips as soon as it is prepared
    bool persists = false;  // it settles once it is on the disk, too
  };

  Round(const Publication& publication, std::vector<Participant> workers, Rules rules);

  // Events. Those of a worker that is not (or no longer) in the round, that come too early or twice, change nothing.
  void join(Participant worker);  // while it is written
  void sealed(std::optional<Digest> digest);
  void ready(WorkerId worker);
  void delivered(const absl::Status& status);
  void prepared(WorkerId worker);
  void failed(WorkerId worker, std::string_view why);
  void decided(const absl::Status& status);
  void acked(WorkerId worker, double seconds, double stall_seconds);
  void persisted(absl::Status status);
  void lost(WorkerId worker, absl::Status why);

  // What is due now, if anything; the phase has moved on when it returns. Call until kNone.
  Action next();
  // With kCommit: those who are to be told now.
  const std::vector<WorkerId>& to_commit() const { return to_commit_; }

  Phase phase() const { return phase_; }
  bool yielded() const;  // written in place, and every worker left has stepped aside
  bool under_way() const { return phase_ != Phase::kSettled && phase_ != Phase::kAborted; }
  const Publication& publication() const { return publication_; }
  std::vector<WorkerId> remaining() const;  // not lost
  std::vector<WorkerId> failed() const;     // with each: who will not flip, not lost
  bool was_told(WorkerId worker) const;     // to commit
  std::vector<WorkerId> late() const;       // who keeps the present phase from ending
  const absl::Status& why_aborted() const { return why_aborted_; }
  void abort(absl::Status why);  // before the decision only

  std::vector<WorkerReport> reports() const;
  const absl::Status& persist_status() const { return persist_status_; }
  // Seconds between entering one phase and entering another; 0 where either was not reached.
  double seconds(Phase from, Phase to) const;
  double persist_seconds() const { return persist_seconds_; }  // from the decision

 private:
  struct Worker {
    Participant who;
    bool ready = false, prepared = false, told = false, acked = false, lost = false, failed = false;
    WorkerReport report;
    bool done() const { return acked || lost || failed; }
  };
  Worker* find(WorkerId id);
  bool all(bool Worker::*flag) const;  // of those not lost
  bool enough_prepared() const;
  bool settled() const;
  bool find_to_commit();
  bool may_flip(const Worker& worker) const;
  void abort_if_hopeless();
  void enter(Phase phase);

  Publication publication_;
  Rules rules_;
  std::vector<Worker> workers_;
  Phase phase_ = Phase::kWriting;
  bool told_ = false;  // what the present phase asks for was asked
  std::vector<WorkerId> to_commit_;
  bool persisted_ = false;
  absl::Status persist_status_;
  double persist_seconds_ = 0;
  absl::Status why_aborted_;
  std::map<Phase, Clock::time_point> entered_;
};

}  // namespace bascule
