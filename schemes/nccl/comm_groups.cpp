#include <bascule/schemes/nccl/comm_groups.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

// ---- events ----

void CommGroups::join(WorkerId worker) {
  workers_.insert(worker);
  gathers_until_ = turn_.in(limits_.gather);
}

void CommGroups::remove(WorkerId worker) {
  workers_.erase(worker);
  strikes_.erase(worker);
  for (auto& [id, group] : groups_)
    if (group.lose(worker)) leave(group, "one of its workers is gone");
  gathers_until_ = turn_.in(limits_.gather);
}

void CommGroups::heard(WorkerId worker, GroupMessage message) {
  CommGroup* const group = find(message.group);
  if (group == nullptr || !group->has(worker)) return;
  switch (message.kind) {
    case GroupMessage::Kind::kReady: return group->answered(worker, State::kAsking);
    case GroupMessage::Kind::kMade: return group->answered(worker, State::kMaking);
    case GroupMessage::Kind::kWarmed: return group->answered(worker, State::kWarming);
    case GroupMessage::Kind::kDropped: return group->dropped(worker, std::move(message));
    case GroupMessage::Kind::kFailed: return broken(worker, *group, message.why);
    default: turn_.act(action::GiveUp{worker, invalid_argument("nccl: it sent a message that only a sender sends")});
  }
}

void CommGroups::broken(WorkerId worker, CommGroup& group, const std::string& why) {
  if (group.state() == State::kLeaving) return;
  // A running group of several workers may have been broken by another worker's death.
  const bool runs = group.state() == State::kMade || group.state() == State::kRunning;
  if ((!runs || group.workers().size() == 1) && ++strikes_[worker] >= limits_.tries)
    turn_.act(action::GiveUp{worker, unavailable(why.starts_with("nccl: ") ? "" : "nccl: ", why)});
  leave(group, why.empty() ? "a worker failed in it and gave no reason" : why);
}

void CommGroups::own_end(CommGroupId id, State state, const absl::Status& status) {
  CommGroup* const group = find(id);
  if (group == nullptr || group->state() != state) return;
  group->own_answered();
  if (absl::IsFailedPrecondition(status)) end(makes_, status);
  if (!status.ok()) leave(*group, std::string(message_of(status)));
}

void CommGroups::own_left(CommGroupId id) {
  if (CommGroup* const group = find(id)) group->own_answered();
}

void CommGroups::end_waits() {
  for (auto& [id, group] : groups_) {
    if (!group.until() || *group.until() > turn_.now) continue;
    switch (group.state()) {
      case State::kAsking:
        give_up_late(group, "did not answer whether it can join a communicator", limits_.ask);
        leave(group, "not all workers answered");
        break;
      case State::kMaking:
      case State::kWarming:
        // No rank finishes before all have come. Only in a group of one worker is the missing one known.
        if (group.workers().size() == 1) give_up_late(group, "did not join a communicator", limits_.make);
        leave(group, "not all ranks came");
        break;
      case State::kLeaving:
        give_up_late(group, "did not leave a communicator", limits_.leave);
        if (group.own_late())
          end(usable_,
              failed_precondition(
                  "nccl: an abort of a communicator of this process has not returned, and its memory cannot be used "
                  "again; restart this process"));
        break;
      case State::kMade:
      case State::kRunning: break;
    }
  }
}

void CommGroups::give_up_late(CommGroup& group, std::string_view what, absl::Duration limit) {
  for (const WorkerId worker : group.late())
    turn_.act(action::GiveUp{worker, deadline_exceeded("nccl: it ", what, " within ", absl::FormatDuration(limit))});
}

void CommGroups::end(absl::Status& what, absl::Status why) {
  if (!what.ok()) return;
  what = std::move(why);
  turn_.act(action::Log{std::string(message_of(what))});
}

// ---- the groups' life ----

CommGroup& CommGroups::ask(std::vector<WorkerId> workers) {
  const CommGroupId id = next_++;
  CommGroup& group = groups_.emplace(id, CommGroup(id, std::move(workers), turn_.in(limits_.ask))).first->second;
  for (const WorkerId worker : group.workers())
    turn_.act(action::Say{worker, {.kind = GroupMessage::Kind::kAsk, .group = id}});
  return group;
}

bool CommGroups::move_on(CommGroup& group, Load load) {
  const State before = group.state();
  switch (before) {
    case State::kAsking:
      if (!can_make().ok()) {
        leave(group, std::string(message_of(can_make())));
      } else if (group.is_complete()) {
        group.make(turn_.in(limits_.make));
        turn_.act(action::Make{group.id(), group.workers()});
      }
      break;
    case State::kMaking:
      if (group.is_complete()) group.made();
      break;
    case State::kMade:
      if (load.waits) {  // it is this group's first broadcast
        group.run();
      } else if (!load.going && !any(State::kWarming)) {
        group.warm(turn_.in(limits_.make));
        for (const WorkerId worker : group.workers())
          turn_.act(action::Say{worker, {.kind = GroupMessage::Kind::kWarm, .group = group.id()}});
        turn_.act(action::Warm{group.id()});
      }
      break;
    case State::kWarming:
      if (group.is_complete()) group.run();
      break;
    case State::kRunning:
    case State::kLeaving: break;
  }
  return group.state() != before;
}

void CommGroups::leave(CommGroup& group, std::string why) {
  if (group.state() == State::kLeaving) return;
  group.leave(std::move(why), workers_, turn_.in(limits_.leave));
  for (const WorkerId worker : group.workers())
    if (has(worker)) turn_.act(action::Say{worker, {.kind = GroupMessage::Kind::kDrop, .group = group.id()}});
  if (group.is_begun()) turn_.act(action::Leave{group.id()});
}

CommGroup CommGroups::take_out(CommGroupId id) { return std::move(groups_.extract(id).mapped()); }

void CommGroups::want_one_of_all_in(absl::Duration time) {
  if (!gathers_until_) gathers_until_ = turn_.in(time);
}

// The group of all workers is made while the others serve.
void CommGroups::make_one_of_all() {
  if (!gathers_until_ || *gathers_until_ > turn_.now) return;
  gathers_until_.reset();
  if (!can_make().ok() || workers_.empty() ||
      std::ranges::any_of(groups_, [this](const auto& each) { return each.second.is_of(workers_); }))
    return;
  ask({workers_.begin(), workers_.end()});
}

// Each group holds memory on each of its devices, so only one stays beside the group of all workers, while it is used.
void CommGroups::drop_spares() {
  std::vector<CommGroup*> spares;
  for (auto& [id, group] : groups_)
    if (group.state() == State::kRunning && !group.is_of(workers_)) spares.push_back(&group);
  if (std::ranges::none_of(groups_, [this](const auto& each) {
        return each.second.state() == State::kRunning && each.second.is_of(workers_);
      }))
    return;
  constexpr std::uint64_t kRecent = 4;  // uses of any group
  const auto kept = std::ranges::max_element(spares, {}, &CommGroup::used);
  for (auto each = spares.begin(); each != spares.end(); ++each)
    if (each != kept || (*each)->used() + kRecent < uses_) leave(**each, "");
}

// ---- what it knows ----

CommGroup* CommGroups::find(CommGroupId id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

CommGroup* CommGroups::cover(const std::set<WorkerId>& workers, bool runs) {
  CommGroup* best = nullptr;
  const auto rank = [](const CommGroup& group) {
    return std::pair(group.state() == State::kRunning, group.workers().size());
  };
  for (auto& [id, group] : groups_) {
    if (group.state() == State::kLeaving || (runs && group.state() != State::kRunning)) continue;
    if (!group.is_within(workers)) continue;
    if (best == nullptr || rank(*best) < rank(group)) best = &group;
  }
  return best;
}

bool CommGroups::any(State state) const {
  return std::ranges::any_of(groups_, [state](const auto& each) { return each.second.state() == state; });
}

std::vector<CommGroupId> CommGroups::ids() const {
  std::vector<CommGroupId> ids;
  for (const auto& [id, group] : groups_) ids.push_back(id);
  return ids;
}

std::map<CommGroup::State, int> CommGroups::states() const {
  std::map<State, int> states;
  for (const auto& [id, group] : groups_) ++states[group.state()];
  return states;
}

std::optional<Clock::time_point> CommGroups::next_deadline() const {
  std::optional<Clock::time_point> next = gathers_until_;
  for (const auto& [id, group] : groups_)
    if (const auto until = group.until()) next = next ? std::min(*next, *until) : until;
  return next;
}

}  // namespace bascule::inline v0::nccl
