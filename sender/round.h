// Round: one version on its way to a set of workers, as a two-phase commit. Pure bookkeeping: events come in,
// and next() says what to do; the coordinator does it.
//
//   state       leaves it when                            to
//   writing     sealed()                                  sealed
//   sealed      every worker left is ready                delivering
//   delivering  delivered(OK) / delivered(error)          preparing / aborted
//   preparing   every worker left is prepared             committing     the decision: nothing aborts after
//   it
//               one failed                                aborted
//   committing  every worker left has acked               settled
//
// A worker that is lost (dead, silent, late) leaves the round; the rest go on.
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
  enum class Phase { kWriting, kSealed, kDelivering, kPreparing, kCommitting, kSettled, kAborted };
  enum class Action { kNone, kDeliver, kAnnounce, kCommit, kSettle, kAbort };

  struct Participant {
    WorkerId id = 0;
    std::string name;
  };

  Round(const Publication& publication, std::vector<Participant> workers);

  // Events. Those of a worker that is not (or no longer) in the round, that come too early or twice, change nothing.
  void sealed(std::optional<Digest> digest);
  void ready(WorkerId worker);
  void delivered(const absl::Status& status);
  void prepared(WorkerId worker);
  void failed(WorkerId worker, std::string_view why);
  void acked(WorkerId worker, double seconds, double stall_seconds);
  void lost(WorkerId worker, absl::Status why);

  // What is due now, if anything; the phase has moved on when it returns. Call until kNone.
  Action next();

  Phase phase() const { return phase_; }
  bool under_way() const { return phase_ != Phase::kSettled && phase_ != Phase::kAborted; }
  const Publication& publication() const { return publication_; }
  std::vector<WorkerId> remaining() const;  // not lost
  std::vector<WorkerId> late() const;       // who keeps the present phase from ending
  const absl::Status& why_aborted() const { return why_aborted_; }
  void abort(absl::Status why);  // before the decision only

  std::vector<WorkerReport> reports() const;
  // Seconds between entering one phase and entering another; 0 where either was not reached.
  double seconds(Phase from, Phase to) const;

 private:
  struct Worker {
    Participant who;
    bool ready = false, prepared = false, acked = false, lost = false, failed = false;
    WorkerReport report;
  };
  Worker* find(WorkerId id);
  bool all(bool Worker::*flag) const;  // of those not lost
  void enter(Phase phase);

  Publication publication_;
  std::vector<Worker> workers_;
  Phase phase_ = Phase::kWriting;
  bool told_ = false;  // the workers know of the present phase
  absl::Status why_aborted_;
  std::map<Phase, Clock::time_point> entered_;
};

}  // namespace bascule
