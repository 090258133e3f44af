#include <bascule/schemes/nccl/comm_group.h>

#include <algorithm>
#include <utility>

namespace bascule::inline v0::nccl {

CommGroup::CommGroup(CommGroupId id, std::vector<WorkerId> workers, Clock::time_point until)
    : id_(id), workers_(std::move(workers)), awaited_(workers_.begin(), workers_.end()), until_(until) {}

std::optional<Clock::time_point> CommGroup::until() const {
  if (state_ == State::kMade || state_ == State::kRunning) return std::nullopt;
  return until_;
}

bool CommGroup::has(WorkerId worker) const { return std::ranges::find(workers_, worker) != workers_.end(); }

bool CommGroup::is_within(const std::set<WorkerId>& workers) const {
  return std::ranges::all_of(workers_, [&](WorkerId worker) { return workers.contains(worker); });
}

bool CommGroup::is_of(const std::set<WorkerId>& workers) const {
  return state_ != State::kLeaving && workers_.size() == workers.size() && is_within(workers);
}

// ---- what its state waits for ----

void CommGroup::answered(WorkerId worker, State state) {
  if (state_ == state) awaited_.erase(worker);
}

std::set<WorkerId> CommGroup::late() { return std::exchange(awaited_, {}); }
bool CommGroup::own_late() { return std::exchange(own_awaited_, false); }

// ---- the next state ----

void CommGroup::await_all(State state, Clock::time_point until) {
  state_ = state;
  own_awaited_ = true;
  awaited_ = {workers_.begin(), workers_.end()};
  until_ = until;
}

void CommGroup::make(Clock::time_point until) {
  await_all(State::kMaking, until);
  begun_ = true;
}

void CommGroup::warm(Clock::time_point until) { await_all(State::kWarming, until); }

void CommGroup::leave(std::string why, const std::set<WorkerId>& there, Clock::time_point until) {
  state_ = State::kLeaving;
  why_ = std::move(why);
  until_ = until;
  awaited_.clear();
  own_awaited_ = begun_;
  if (!begun_) return;
  for (const WorkerId worker : workers_)
    if (there.contains(worker)) awaited_.insert(worker);
}

bool CommGroup::lose(WorkerId worker) {
  if (!has(worker)) return false;
  awaited_.erase(worker);
  bereft_ = true;
  return true;
}

// ---- its deliveries ----

void CommGroup::dropped(WorkerId worker, GroupMessage message) {
  if (state_ != State::kLeaving) return;
  awaited_.erase(worker);
  dropped_[worker] = std::move(message);
}

std::uint64_t CommGroup::there_of(std::uint64_t delivery, WorkerId worker, std::uint64_t from) const {
  const auto said = dropped_.find(worker);
  return said == dropped_.end() || said->second.number != delivery ? from : std::max(said->second.from, from);
}

}  // namespace bascule::inline v0::nccl
