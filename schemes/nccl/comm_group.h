// CommGroup: one communicator as its sender sees it: its workers, its state, and the ranks whose answers it awaits. The
// sender is rank 0; the workers are the other ranks.
//
//   asking ──▶ making ──▶ made ──▶ warming ──▶ running
//                         made ── a delivery waits ──▶ running
//   any of these ──▶ leaving ──▶ (gone)
//
// schemes/nccl/README.md says what happens in each state. A group only keeps records; CommGroups decides. Pure
// bookkeeping.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include <bascule/schemes/nccl/messages.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

// How long each state may last.
struct CommGroupLimits {
  absl::Duration ask = absl::Seconds(5);            // for every worker's `ready`
  absl::Duration make = absl::Seconds(10);          // for every rank of a new communicator
  absl::Duration leave = absl::Seconds(10);         // for an abort; after that the process is poisoned
  absl::Duration run_out = absl::Seconds(5);        // for the remaining pieces of a version that was given up
  absl::Duration gather = absl::Milliseconds(100);  // workers that join within this time share one group
  int tries = 3;  // per delivery, each in a new group; and per worker, to join a group
};

class CommGroup {
 public:
  enum class State { kAsking, kMaking, kMade, kWarming, kRunning, kLeaving };

  // Begins in kAsking. Here and below, `until` is the deadline of the state that begins.
  CommGroup(CommGroupId id, std::vector<WorkerId> workers, Clock::time_point until);

  CommGroupId id() const { return id_; }
  State state() const { return state_; }
  std::optional<Clock::time_point> until() const;                    // nullopt if this state has no limit
  const std::vector<WorkerId>& workers() const { return workers_; }  // ranks 1 and up, including lost workers
  bool has(WorkerId worker) const;
  bool is_within(const std::set<WorkerId>& workers) const;  // all of its workers are in `workers`
  bool is_of(const std::set<WorkerId>& workers) const;      // its workers are exactly these, and it was not left

  // ---- what its state waits for ----

  void answered(WorkerId worker, State state);  // its message for that state has come
  void own_answered() { own_awaited_ = false; }
  bool is_complete() const { return awaited_.empty() && !own_awaited_; }
  std::set<WorkerId> late();  // returns the workers that have not answered, and stops waiting for them
  bool own_late();            // like late(), for this end

  // ---- the next state ----

  void make(Clock::time_point until);  // this end now has a rank in it
  void made() { state_ = State::kMade; }
  void warm(Clock::time_point until);
  void run() { state_ = State::kRunning; }
  // `there` are the workers that can still answer.
  void leave(std::string why, const std::set<WorkerId>& there, Clock::time_point until);
  bool is_begun() const { return begun_; }
  const std::string& why() const { return why_; }  // why it was left

  // Removes a lost worker. Returns false if it was not in this group.
  bool lose(WorkerId worker);
  bool is_bereft() const { return bereft_; }  // whether it lost a worker

  // ---- its deliveries ----

  void dropped(WorkerId worker, GroupMessage message);  // the worker left; `message` says how much of a delivery it has
  // Returns how many bytes of a delivery, from the first, the worker has. The delivery was under way in this group,
  // starting with byte `from`.
  std::uint64_t there_of(std::uint64_t delivery, WorkerId worker, std::uint64_t from) const;

  void use(std::uint64_t count) { used_ = count; }
  std::uint64_t used() const { return used_; }  // a count that grows with each use of any group

 private:
  void await_all(State state, Clock::time_point until);

  const CommGroupId id_;
  const std::vector<WorkerId> workers_;
  State state_ = State::kAsking;
  std::set<WorkerId> awaited_;
  bool own_awaited_ = false, begun_ = false, bereft_ = false;
  Clock::time_point until_;
  std::map<WorkerId, GroupMessage> dropped_;
  std::uint64_t used_ = 0;
  std::string why_;
};

}  // namespace bascule::inline v0::nccl
