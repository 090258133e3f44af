// How the ranks meet: they join rank 0, state their shards, and get the plan. crew.cpp has what happens at each send.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include <bascule/sender/ranks/crew.h>
#include <bascule/sender/ranks/crew_plan.h>
#include <bascule/sender/ranks/join.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Kind = RankMessage::Kind;

}  // namespace

absl::Status check_takes_ranks(const Scheme& scheme, const Endpoint& endpoint) {
  if ((!scheme.many_writers && scheme.region_granule == 0) || endpoint.over_tcp())
    return unimplemented(
        "several ranks write one version, which needs memory that workers reach on this host: expected an endpoint ",
        "such as shm:///tmp/run, or cuda-ipc:///tmp/run for tensors on GPUs, found ", scheme.name,
        endpoint.over_tcp() ? " over TCP" : "", "; or gather the tensors and send them from one rank");
  if (endpoint.single_copy())
    return invalid_argument("slots=1: the parameters of one process live in the slot; use slots=2 with several ranks");
  return absl::OkStatus();
}

absl::Status check_ranks(const SenderOptions& options, const Scheme& scheme, const Endpoint& endpoint) {
  if (options.ranks == 0 || options.ranks > kMostShardRanks || options.rank >= options.ranks)
    return invalid_argument("expected 1 to ", kMostShardRanks, " ranks, and a rank below that number; found rank ",
                            options.rank, " of ", options.ranks);
  return options.ranks > 1 ? check_takes_ranks(scheme, endpoint) : absl::OkStatus();
}

absl::StatusOr<ProcessFd> Crew::admit(const RankHello& hello) {
  const std::lock_guard lock(mutex_);
  if (hello.protocol != kProtocol)
    return failed_precondition("rank ", hello.rank, " uses protocol ", hello.protocol, ", expected ", kProtocol,
                               "; run the same version of Bascule on all ranks");
  if (hello.ranks != ranks())
    return failed_precondition("rank ", hello.rank, " (pid ", hello.pid, ") says that there are ", hello.ranks,
                               " ranks, and rank 0 says ", ranks(), "; give all ranks the same number");
  if (!lost_.ok() || (met_ && !members_[hello.rank].line))
    return failed_precondition("rank ", hello.rank, " (pid ", hello.pid, met_ ? ") comes alone: " : ") is too late: ",
                               lost_.ok() ? "it was lost" : message_of(lost_),
                               "; one rank cannot join later, so start all ranks of the trainer again");
  Member& member = members_[hello.rank];
  if (member.line)
    return failed_precondition("rank ", hello.rank, " has joined already, as pid ", member.pid,
                               "; give each process its own rank, or start all ranks of the trainer again");
  BASCULE_ASSIGN(auto ends, RankLine::make_ends());
  member.pid = hello.pid;
  member.line.emplace(std::move(ends.first));
  return std::move(ends.second);
}

void Crew::note_gone() {
  for (Member& member : members_)
    if (member.line && !member.gone && member.line->other_end_is_gone()) member.gone = Clock::now();
}

void Crew::look_at_lines() {
  const std::lock_guard lock(mutex_);
  note_gone();
}

std::vector<RankStatus> Crew::status() {
  const std::lock_guard lock(mutex_);
  note_gone();
  std::vector<RankStatus> status;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    const Member& member = members_[rank];
    const bool here = rank == 0 ? meeting_ : member.line.has_value();
    RankStatus& shown = status.emplace_back(RankStatus{.rank = rank,
                                                       .pid = rank == 0 ? ::getpid() : member.pid,
                                                       .state = here && member.gone           ? "gone"
                                                                : here                        ? "joined"
                                                                : rank > 0 && member.pid != 0 ? "lost"
                                                                                              : "awaited",
                                                       .bytes = member.bytes});
    if (member.gone)
      shown.gone_seconds = static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *member.gone).count());
  }
  return status;
}

absl::Status Crew::wait_joined(Deadline deadline) {
  while (true) {
    const std::vector<RankStatus> now = status();
    if (std::ranges::none_of(now, [](const RankStatus& rank) { return rank.state == "awaited"; }))
      return absl::OkStatus();
    // Its place cannot be given to another process.
    for (const RankStatus& rank : now)
      if (rank.gone_seconds)
        return unavailable("rank ", rank.rank, " (pid ", rank.pid,
                           ") joined, and is gone before all had; start all ranks of the trainer again");
    if (deadline.passed()) return missing_ranks(now);
    if (interrupted_ && interrupted_()) return absl::CancelledError("interrupted while other ranks were awaited");
    absl::SleepFor(std::min(absl::Milliseconds(20), std::max(deadline.left(), absl::ZeroDuration())));
  }
}

// It is called once: after an error, no rank can send.
absl::Status Crew::meet(std::unique_ptr<ShardSource> source, const std::string& description, Deadline deadline,
                        const std::function<absl::Status()>& use) {
  if (held_ || !lost_.ok())
    return failed_precondition("register_shards was called before, and failed; make a new sender on all ranks");
  {
    const std::lock_guard lock(mutex_);
    meeting_ = true;
  }
  absl::Status fit = all_fit(std::move(source), description, deadline, use);
  return fit.ok() || !lost_.ok() ? fit : end(std::move(fit));
}

absl::Status Crew::all_fit(std::unique_ptr<ShardSource> source, const std::string& description, Deadline deadline,
                           const std::function<absl::Status()>& use) {
  absl::StatusOr<HeldShards> held = HeldShards::make(std::move(source), scheme_);
  if (!held.ok()) return annotate(held.status(), "rank 0");
  held_.emplace(*std::move(held));
  BASCULE_TRY(wait_joined(deadline));
  BASCULE_TRY(hear_all(Kind::kShards, deadline, "stated its shards", Late::kReported));
  RankMessage own(Kind::kShards);
  own.specs = held_->specs();
  own.numbers = held_->numbers();
  own.description = description;
  std::vector<RankMessage*> stated = {&own};
  for (std::size_t rank = 1; rank < members_.size(); ++rank) stated.push_back(&*members_[rank].came);
  absl::StatusOr<CrewPlan> plan = plan_crew(stated, scheme_.region_granule);
  if (plan.ok()) {
    owned_ = plan->shards.ranks.front().boxes;
    division_ = std::move(plan->division);
    if (absl::Status used = use(); !used.ok()) plan = std::move(used);
  }
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    if (members_[rank].came->status.code != 0) continue;  // its call has ended
    RankMessage message(Kind::kPlan);
    message.status = sent(plan.status());
    if (plan.ok()) message.numbers.assign(plan->shards.ranks[rank].boxes.begin(), plan->shards.ranks[rank].boxes.end());
    BASCULE_TRY(say(rank, name_of(message), to_bytes(message)));
  }
  const std::lock_guard lock(mutex_);
  met_ = plan.ok();
  for (std::size_t rank = 0; met_ && rank < members_.size(); ++rank)
    members_[rank].bytes = plan->shards.ranks[rank].bytes;
  return plan.status();
}

}  // namespace bascule::inline v0
