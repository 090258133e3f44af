#include "schemes/nccl/planner_world.h"

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

// Selects by these numbers from the possible ones.
const auto& nth(const auto& map, std::size_t n) {
  return *std::next(map.begin(), static_cast<std::ptrdiff_t>(n % map.size()));
}

absl::Status broke() { return absl::UnavailableError("it broke"); }

}  // namespace

PlannerWorld::PlannerWorld(std::uint64_t seed)
    : faults_(seed % 4),
      planner_(limits_, ModelCommunicator::kPiece),
      rules_(planner_, ModelCommunicator::kPiece, watch_) {}

std::string PlannerWorld::run(const std::vector<Step>& steps) {
  for (const Step& each : steps) {
    if (!watch_.wrong.empty()) return watch_.wrong;
    step(each);
  }
  finish();
  return watch_.wrong;
}

// ---- around the planner ----

void PlannerWorld::tell(Event event) {
  ++events_;
  rules_.note(event);
  for (Action& action : planner_.on(std::move(event), now_)) {
    rules_.look(action, now_);
    std::visit([this](auto& each) { carry_out(each); }, action);
  }
  rules_.look_behind_event();
}

void PlannerWorld::tell_worker(WorkerId id, GroupMessage message) {
  if (const auto worker = workers_.find(id); worker != workers_.end()) worker->second.tell(std::move(message));
}

void PlannerWorld::carry_out(action::Say& say) {
  watch_.say("  to ", say.worker, ": ", text_of(say.message));
  tell_worker(say.worker, std::move(say.message));
}

void PlannerWorld::carry_out(action::Deliver& deliver) {
  watch_.say("  to ", deliver.worker, ": ", text_of(deliver.message));
  tell_worker(deliver.worker, std::move(deliver.message));
}

void PlannerWorld::carry_out(action::GiveUp& gives_up) {
  watch_.say("  gives up ", gives_up.worker, ": ", message_of(gives_up.why));
  if (workers_.contains(gives_up.worker)) to_remove_.insert(gives_up.worker);
}

void PlannerWorld::carry_out(action::Make& make) {
  watch_.say("  makes group ", make.group);
  communicators_.emplace(make.group, make.workers);
  const int ranks = static_cast<int>(make.workers.size()) + 1;
  int rank = 0;
  for (const WorkerId id : make.workers)
    tell_worker(id, {.kind = GroupMessage::Kind::kMake, .group = make.group, .rank = ++rank, .ranks = ranks});
}

void PlannerWorld::carry_out(action::Warm& warm) {
  watch_.say("  warms group ", warm.group);
  post_own(warm.group, {});
}

void PlannerWorld::carry_out(action::Broadcast& broadcast) {
  watch_.say("  broadcasts delivery ", broadcast.number, " in group ", broadcast.group, " from ", broadcast.from);
  post_own(broadcast.group, {.number = broadcast.number, .from = broadcast.from});
}

void PlannerWorld::carry_out(action::RunOut& runs_out) {
  watch_.say("  delivery ", runs_out.number, " runs out");
  deliveries_.at(runs_out.number).ran_out = true;
}

void PlannerWorld::carry_out(action::Leave& leave) {
  watch_.say("  leaves group ", leave.group);
  communicators_.at(leave.group).leave(0);
  own_[leave.group].push_back(event::Left{leave.group});
}

void PlannerWorld::carry_out(action::Done& done) {
  watch_.say("  delivery ", done.number, " is done: ", done.status.ToString());
  deliveries_.at(done.number).done = true;
}

// ---- steps ----

void PlannerWorld::step(Step step) {
  const std::uint32_t kind = step.what % 64, what = step.what / 64;
  const auto pick = [&](const auto& map) { return nth(map, step.which).first; };
  if (kind < 3) return join();
  if (kind == 3 && !workers_.empty() && what % 2 == 0) return remove(pick(workers_));
  if (kind < 8) return want(step.which);
  if (kind == 8) return what % 2 == 0 ? stop(step.which) : void();
  if (kind == 9) return pass(what % 32 == 0 ? std::chrono::seconds(4) : std::chrono::milliseconds(60));
  if (kind == 10 && wakes_at_ && (what % 32 == 0 || *wakes_at_ - now_ < std::chrono::milliseconds(200)))
    return pass(std::max(*wakes_at_ - now_, Clock::duration()));
  if (kind < 14 && what % 64 < faults_) return fault(what / 64, step.which);
  if (kind == 14 && !to_remove_.empty()) return remove(*to_remove_.begin());
  if (kind == 15) {
    for (auto& [number, delivery] : deliveries_) delivery.written |= step.which % 4 == number % 4;
    return;
  }
  if (kind < 24) {
    turn_all(/*removes=*/false);
    return;
  }
  const bool fails = what % 256 < faults_;
  if (kind < 36) {
    if (!workers_.empty()) workers_.at(pick(workers_)).turn(fails);
  } else if (kind < 46) {
    if (!workers_.empty()) hear_worker(pick(workers_));
  } else if (kind < 53) {
    if (!own_.empty()) own_turn(pick(own_));
  } else if (!communicators_.empty()) {
    const std::size_t back = step.which % std::min<std::size_t>(communicators_.size(), 4);  // among the newest
    const auto& [group, communicator] = nth(communicators_, communicators_.size() - 1 - back);
    const std::vector<WorkerId> ranks = communicator.ranks();
    move(group, ranks[what % ranks.size()]);
  }
}

void PlannerWorld::join() {
  if (workers_.size() >= 5) return;
  const WorkerId id = next_worker_++;
  watch_.say("worker ", id, " joins");
  workers_.try_emplace(id, id, communicators_, watch_);
  tell(event::Joined{id});
}

void PlannerWorld::remove(WorkerId id) {
  watch_.say("worker ", id, " is removed");
  workers_.erase(id);
  to_remove_.erase(id);
  for (auto& [group, communicator] : communicators_)
    if (communicator.has(id)) communicator.leave(id);
  tell(event::Removed{id});
}

// A worker is sent one version at a time; a version that was given up may still be on its way.
bool PlannerWorld::is_busy(WorkerId id) const {
  return std::ranges::any_of(deliveries_, [id](const auto& each) {
    return !each.second.done && !each.second.stopped && each.second.workers.contains(id);
  });
}

void PlannerWorld::want(std::uint32_t which) {
  Delivery delivery;
  for (const auto& [id, worker] : workers_)
    if (!is_busy(id) && (which % 3 != 0 || which / 3 >> id % 8 & 1)) delivery.workers.insert(id);
  if (delivery.workers.empty() && which % 16 != 0) return;
  delivery.written = which / 4096 % 2 == 0;
  const std::uint64_t number = next_delivery_++;
  std::string by;
  for (const WorkerId id : delivery.workers) by += cat(" by ", id);
  watch_.say("delivery ", number, " is wanted", by);
  deliveries_[number] = delivery;
  tell(event::Wanted{
      .number = number, .version = number, .workers = {delivery.workers.begin(), delivery.workers.end()}});
}

void PlannerWorld::stop(std::uint32_t which) {
  for (auto& [number, delivery] : deliveries_) {
    if (delivery.done || delivery.stopped || (which + number) % 3 != 0) continue;
    watch_.say("delivery ", number, " is stopped", delivery.written ? ", whole" : "");
    delivery.stopped = true;
    return tell(event::Stopped{.number = number, .whole = delivery.written});
  }
}

void PlannerWorld::pass(Clock::duration time) {
  now_ += time;
  if (!wakes_at_ || *wakes_at_ > now_) return;
  wakes_at_.reset();
  watch_.say("a tick");
  tell(event::Tick{});
}

// ---- what the workers say, and this end ----

bool PlannerWorld::hear_worker(WorkerId id) {
  const std::optional<GroupMessage> message = workers_.at(id).said();
  if (!message) return false;
  watch_.say("worker ", id, " said ", text_of(*message));
  tell(event::Heard{.worker = id, .message = *message});
  return true;
}

bool PlannerWorld::own_turn(CommGroupId group) {
  std::deque<Event>& events = own_.at(group);
  if (events.empty()) return false;
  if (std::holds_alternative<event::Left>(events.front()) && hanging_.contains(group)) return false;
  Event event = std::move(events.front());
  events.pop_front();
  watch_.say("this end of group ", group, ": event ", event.index());
  tell(std::move(event));
  return true;
}

// One piece further.
bool PlannerWorld::move(CommGroupId group, WorkerId rank) {
  ModelCommunicator& communicator = communicators_.at(group);
  if (rank == 0 && communicator.end_init(0)) {
    own_[group].push_back(event::Made{.group = group, .status = absl::OkStatus()});
    return true;
  }
  const std::optional<Posted> posted = communicator.next(rank);
  const auto worker = workers_.find(rank);
  if (!posted || (worker != workers_.end() && worker->second.is_silent())) return false;
  watch_.expect(communicator.is_paired(rank), cat("group ", group, " pairs broadcasts of different deliveries"));
  if (posted->number != 0) {
    const Delivery& delivery = deliveries_.at(posted->number);
    if (!delivery.written && !delivery.ran_out) return false;
  }
  const std::uint64_t there = communicator.move(rank);
  if (worker != workers_.end()) worker->second.moved(*posted, there);
  if (there < posted->bytes()) return true;
  if (worker != workers_.end()) worker->second.came(group, *posted);
  if (rank == 0) sent(group, *posted, absl::OkStatus());
  return true;
}

void PlannerWorld::post_own(CommGroupId group, const Posted& posted) {
  ModelCommunicator& communicator = communicators_.at(group);
  communicator.post(0, posted);
  if (communicator.is_broken(0)) fail_own(group);
}

void PlannerWorld::fail_own(CommGroupId group) {
  for (const Posted& posted : communicators_.at(group).fail(0)) sent(group, posted, broke());
}

void PlannerWorld::sent(CommGroupId group, const Posted& posted, const absl::Status& status) {
  if (posted.number == 0) return own_[group].push_back(event::Warmed{.group = group, .status = status});
  own_[group].push_back(event::Sent{.group = group, .number = posted.number, .status = status});
}

void PlannerWorld::fault(std::uint32_t what, std::uint32_t which) {
  if (what % 4 < 2 && !workers_.empty()) {
    const WorkerId id = nth(workers_, which).first;
    ModelWorker& worker = workers_.at(id);
    worker.change_silence();
    watch_.say("worker ", id, worker.is_silent() ? " falls silent" : " wakes");
    return;
  }
  if (communicators_.empty()) return;
  auto& [group, communicator] = *std::prev(communicators_.end());
  const bool left = communicator.is_gone(0);
  if (what % 4 == 2 && !left) {
    watch_.say("this end's rank of group ", group, " breaks");
    if (communicator.end_init(0, /*fails=*/true)) own_[group].push_back(event::Made{.group = group, .status = broke()});
    fail_own(group);
  } else if (!workers_.empty() && which % 8 != 0) {
    workers_.at(nth(workers_, which / 8).first).break_ranks();
  } else if (which / 8 % 8 == 0 && !left) {
    watch_.say("an abort of group ", group, " would hang");
    hanging_.insert(group);
  }
}

// ---- every wait ends ----

bool PlannerWorld::turn_all(bool removes) {
  bool moved = false;
  while (removes && !to_remove_.empty()) remove(*to_remove_.begin()), moved = true;
  std::vector<WorkerId> ids;
  for (const auto& [id, worker] : workers_) ids.push_back(id);
  for (const WorkerId id : ids) {
    if (workers_.contains(id)) moved |= workers_.at(id).turn(/*fails=*/false);
    if (workers_.contains(id)) moved |= hear_worker(id);
  }
  std::vector<CommGroupId> groups;
  for (const auto& [group, communicator] : communicators_) groups.push_back(group);
  for (const CommGroupId group : groups) {
    for (const WorkerId rank : communicators_.at(group).ranks()) moved |= move(group, rank);
    if (own_.contains(group)) moved |= own_turn(group);
  }
  return moved;
}

void PlannerWorld::settle(std::string_view what) {
  for (int ticks = 0; ticks < 40 && watch_.wrong.empty(); ++ticks) {
    int turns = 0;
    while (turn_all(/*removes=*/true) && watch_.wrong.empty()) {
      if (++turns < 5000) continue;
      return watch_.expect(false, cat(what, ": it never comes to rest"));
    }
    if (!wakes_at_) return;
    pass(std::max(*wakes_at_ - now_, Clock::duration()));
  }
  watch_.expect(false, cat(what, ": deadlines without end"));
}

void PlannerWorld::finish() {
  watch_.say("no more faults");
  for (auto& [number, delivery] : deliveries_) delivery.written |= !delivery.stopped;
  std::set<WorkerId> silent;
  for (const auto& [id, worker] : workers_)
    if (worker.is_silent()) silent.insert(id);
  for (const WorkerId id : silent) remove(id);
  settle("without further faults");
  if (!watch_.wrong.empty()) return;
  for (const auto& [id, worker] : workers_) watch_.expect(!worker.waits(), cat("worker ", id, " waits for ever"));
  rules_.look_at_rest();
  while (!workers_.empty()) remove(workers_.begin()->first);
  settle("without workers");
  watch_.expect(planner_.states().empty(), "a group without workers stays");
}

}  // namespace bascule::inline v0::nccl
