// Round: one version in flight to a set of workers, as a two-phase commit. Pure bookkeeping: events come in, next()
// returns what to do, and the fleet does it. Handling a worker's event is O(1) in the number of workers.
//
//   state       leaves it when                                   to
//   writing     sealed()                                         sealed
//               single_copy: the loan exceeds loan_timeout       aborted: the workers are let go, poisoned
//               (with behind, delivery already begins here, once every remaining worker is ready)
//   sealed      every remaining worker is ready                  delivering, or preparing if nothing is delivered
//   delivering  delivered(OK) / delivered(error)                 preparing / aborted
//   preparing   every remaining worker is prepared (with each:   deciding
//               one worker, and all ranks of its group)
//               one failed (with each: all did)                  aborted
//   deciding    decided(OK) / decided(error)                     committing / aborted
//   committing  every remaining worker has acked or, with each,  settled
//               failed; with persists, also: the disk has it
//
// While deciding or later, only the decision itself can abort: it may be under way, on another thread. A lost worker
// (dead, silent, late) leaves the round; the others continue.
//
// With ahead, a worker that is alone in the round learns the decision with `sealed`: since it waits for no other, the
// decision depends only on whether it can prepare the version. If it cannot, the version is aborted as always.
//
// Only the constructor, join(), failed() and the errors' texts need memory; if there is none, they change nothing.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include <bascule/sender/fleet/limit.h>
#include <bascule/sender/report.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

class Round {
 public:
  enum class Phase { kWriting, kSealed, kDelivering, kPreparing, kDeciding, kCommitting, kSettled, kAborted };
  enum class Action { kNone, kYielded, kDeliver, kAnnounce, kDecide, kDecided, kPersist, kSettle, kAbort };

  struct WorkerIdentity {
    WorkerId id = 0;
    std::string name;
    std::string group{};  // its ranks flip together; empty: none
  };
  struct Rules {
    bool single_copy = false;  // readers read the memory that is written: all must be ready before writing begins
    bool delivers = false;     // the scheme moves the bytes
    bool behind = false;       // delivery begins while the bytes are written
    bool each = false;         // a worker, or a group, flips as soon as it is prepared
    bool persists = false;     // the version settles only once it is also on the disk
    bool ahead = false;        // a worker that is alone may be told of the decision with the seal
  };

  Round(const Publication& publication, std::vector<WorkerIdentity> workers, Rules rules);

  // Events. An event changes nothing if it comes too early or twice, or if its worker is not (or no longer) in the
  // round.
  void join(WorkerIdentity worker);  // while the version is written
  void sealed(std::optional<Digest> digest);
  void ready(WorkerId worker);
  void delivered(const absl::Status& status);
  void prepared(WorkerId worker, const std::optional<BytesRead>& bytes = {});  // `bytes` is for the report
  void failed(WorkerId worker, std::string_view why);
  void decided(const absl::Status& status);
  // The worker knows the decision, and has the time of `limit` to load the version, if that is longer than the time it
  // has anyway. A second such message moves that time once more, because at the first the worker may still have been
  // loading another version.
  void loading(WorkerId worker, const Limit& limit);
  void acked(WorkerId worker, double seconds, double stall_seconds);
  void persisted(absl::Status status);
  void lost(WorkerId worker, absl::Status why);

  // Returns what is due now, if anything, and advances the phase. After each event, call it until it returns kNone: it
  // also records when a phase began.
  Action next(Clock::time_point now) noexcept;
  void again(Action action) { again_ = action; }  // it could not be done, so the following next() returns it
  // After kDecided: the workers that must be told now.
  const std::vector<WorkerId>& to_tell() const { return to_tell_; }

  Phase phase() const { return phase_; }
  bool yielded() const;  // a single copy, and every remaining worker has yielded
  bool under_way() const { return phase_ != Phase::kSettled && phase_ != Phase::kAborted; }
  const Publication& publication() const { return publication_; }
  std::vector<WorkerId> remaining() const;  // workers that are not lost
  bool has(WorkerId worker) const;          // one of remaining()
  bool deserted() const { return lost_ == workers_.size(); }
  std::vector<WorkerId> failed() const;  // with `each`: workers that are not lost, but will not flip
  bool was_told(WorkerId worker) const;  // whether it was told of the decision, once there was one
  // Whether the worker may flip, though this sender may not know yet that it is prepared.
  bool may_flip(WorkerId worker) const { return told_ahead_ || was_told(worker); }
  // At kAnnounce: whether the decision can be told with the seal; told_ahead() says that it was.
  bool decides_ahead() const;
  void told_ahead() { told_ahead_ = true; }
  bool was_told_ahead() const { return told_ahead_; }

  // ---- limits: until the decision, one for all workers; then each has its own, from when it was told ----

  void limit(const Limit& limit) { limit_ = limit; }  // sets the current step's limit
  const Limit& limit() const { return limit_; }
  void limit_acks(const Limit& limit);  // sets it for the workers in to_tell()
  // Returns the limit that a worker is under, or null if the round does not wait for it now.
  const Limit* limit_of(WorkerId worker) const;
  // Returns the workers that keep the round waiting, and whose limit has passed.
  std::vector<WorkerId> late(Clock::time_point now = Clock::time_point::max()) const;
  // The first limit after `after`; nullopt: nothing that the round waits for has one.
  std::optional<Clock::time_point> next_deadline(Clock::time_point after = Clock::time_point::min()) const;
  bool is_loading(WorkerId worker) const;
  bool is_ready(WorkerId worker) const;

  const absl::Status& why_aborted() const { return why_aborted_; }
  void abort(absl::Status why);  // does nothing once the decision was requested

  std::vector<WorkerReport> reports() const;
  const absl::Status& persist_status() const { return persist_status_; }
  // Seconds between entering one phase and entering another; 0 if either was not reached.
  double seconds(Phase from, Phase to) const;
  double persist_seconds() const;  // since the decision

 private:
  struct Worker {
    WorkerIdentity who;
    std::size_t group = 0;  // in groups_
    bool ready = false, prepared = false, told = false, acked = false, lost = false, failed = false;
    Limit limit{};  // once told
    int load_messages = 0;
    WorkerReport report;
    bool done() const { return acked || lost || failed; }
  };
  struct Group {
    std::vector<std::size_t> ranks;  // in workers_
    std::size_t unprepared = 0;      // not counting lost ranks
  };
  Worker* find(WorkerId id);  // null if the worker is lost
  const Worker* find(WorkerId id) const;
  std::size_t group_of(const WorkerIdentity& who);
  const Limit* limit_of(const Worker& worker) const;
  bool enough_prepared() const;
  bool settled() const { return undone_ == 0 && (!rules_.persists || persisted_); }
  bool find_to_tell();
  void now_prepared(Worker& worker);
  void end(Worker& worker, bool Worker::*how);  // acked, lost or failed
  void abort_if_hopeless();
  void enter(Phase phase);
  Action begin_delivery();
  void end_delivery();
  Action step();
  std::optional<Clock::time_point>& entered(Phase phase) { return entered_.at(static_cast<std::size_t>(phase)); }
  std::optional<Clock::time_point> entered(Phase phase) const { return entered_.at(static_cast<std::size_t>(phase)); }

  Publication publication_;
  Rules rules_;
  Limit limit_ = Limit::none();
  std::vector<Worker> workers_;                         // in the order they joined
  std::unordered_map<WorkerId, std::size_t> places_;    // in workers_
  std::vector<Group> groups_;                           // a worker without a group has its own
  std::unordered_map<std::string, std::size_t> named_;  // in groups_
  std::size_t unready_ = 0, unprepared_ = 0;            // not counting lost workers
  std::size_t undone_ = 0, lost_ = 0, out_ = 0;         // out: lost or failed
  std::vector<std::size_t> flippable_;                  // prepared with their groups, not told yet; in workers_
  Phase phase_ = Phase::kWriting;
  bool told_ = false;  // the current phase's action was requested
  Action again_ = Action::kNone;
  bool told_ahead_ = false;  // the one remaining worker knows that its version is decided once it is prepared
  bool delivery_begun_ = false;
  std::optional<absl::Status> delivered_;
  std::vector<WorkerId> to_tell_;
  bool persisted_ = false;
  absl::Status persist_status_;
  std::optional<Clock::time_point> persisted_at_;
  absl::Status why_aborted_;
  std::array<std::optional<Clock::time_point>, 8> entered_{};  // by phase
};

}  // namespace bascule::inline v0
