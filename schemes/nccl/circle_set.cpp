#include <bascule/schemes/nccl/circle_set.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

// ---- events ----

void CircleSet::join(WorkerId worker) {
  workers_.insert(worker);
  gathers_until_ = turn_.in(limits_.gather);
}

void CircleSet::remove(WorkerId worker) {
  workers_.erase(worker);
  strikes_.erase(worker);
  for (auto& [id, circle] : circles_)
    if (circle.lose(worker)) leave(circle, "one of its workers is gone");
  gathers_until_ = turn_.in(limits_.gather);
}

void CircleSet::heard(WorkerId worker, Word word) {
  Circle* const circle = find(word.circle);
  if (circle == nullptr || !circle->has(worker)) return;
  switch (word.kind) {
    case Word::Kind::kReady: return circle->answered(worker, State::kAsking);
    case Word::Kind::kMade: return circle->answered(worker, State::kMaking);
    case Word::Kind::kWarmed: return circle->answered(worker, State::kWarming);
    case Word::Kind::kDropped: return circle->dropped(worker, std::move(word));
    case Word::Kind::kFailed: return broken(worker, *circle, word.why);
    default: turn_.act(action::GiveUp{worker, invalid_argument("nccl: it said a word that is a sender's")});
  }
}

void CircleSet::broken(WorkerId worker, Circle& circle, const std::string& why) {
  if (circle.state() == State::kLeaving) return;
  // In a circle of several that runs it may be another one's death that broke it.
  const bool runs = circle.state() == State::kMade || circle.state() == State::kRunning;
  if ((!runs || circle.workers().size() == 1) && ++strikes_[worker] >= limits_.tries)
    turn_.act(action::GiveUp{worker, unavailable(why.starts_with("nccl: ") ? "" : "nccl: ", why)});
  leave(circle, why.empty() ? "a worker failed in it without a word why" : why);
}

void CircleSet::own_end(CircleId id, State state, const absl::Status& status) {
  Circle* const circle = find(id);
  if (circle == nullptr || circle->state() != state) return;
  circle->own_answered();
  if (absl::IsFailedPrecondition(status)) end(makes_, status);
  if (!status.ok()) leave(*circle, std::string(message_of(status)));
}

void CircleSet::own_left(CircleId id) {
  if (Circle* const circle = find(id)) circle->own_answered();
}

void CircleSet::end_waits() {
  for (auto& [id, circle] : circles_) {
    if (!circle.until() || *circle.until() > turn_.now) continue;
    switch (circle.state()) {
      case State::kAsking:
        give_up_late(circle, "did not say that it can join a communicator", limits_.ask);
        leave(circle, "not all workers answered");
        break;
      case State::kMaking:
      case State::kWarming:
        // No rank is done before all have come. A circle that a worker is alone in shows which one did not.
        if (circle.workers().size() == 1) give_up_late(circle, "did not join a communicator", limits_.make);
        leave(circle, "not all ranks came");
        break;
      case State::kLeaving:
        give_up_late(circle, "did not leave a communicator", limits_.leave);
        if (circle.own_late())
          end(usable_,
              failed_precondition(
                  "nccl: an abort of a communicator of this process has not come back, and what it uses cannot be used "
                  "again; restart this process"));
        break;
      case State::kMade:
      case State::kRunning: break;
    }
  }
}

void CircleSet::give_up_late(Circle& circle, std::string_view what, absl::Duration limit) {
  for (const WorkerId worker : circle.late())
    turn_.act(action::GiveUp{worker, deadline_exceeded("nccl: it ", what, " within ", absl::FormatDuration(limit))});
}

void CircleSet::end(absl::Status& what, absl::Status why) {
  if (!what.ok()) return;
  what = std::move(why);
  turn_.act(action::Log{std::string(message_of(what))});
}

// ---- what follows ----

Circle& CircleSet::ask(std::vector<WorkerId> workers) {
  const CircleId id = next_++;
  Circle& circle = circles_.emplace(id, Circle(id, std::move(workers), turn_.in(limits_.ask))).first->second;
  for (const WorkerId worker : circle.workers()) turn_.say(worker, {.kind = Word::Kind::kAsk, .circle = id});
  return circle;
}

bool CircleSet::move_on(Circle& circle, Load load) {
  const State before = circle.state();
  switch (before) {
    case State::kAsking:
      if (!can_make().ok()) {
        leave(circle, std::string(message_of(can_make())));
      } else if (circle.is_complete()) {
        circle.make(turn_.in(limits_.make));
        turn_.act(action::Make{circle.id(), circle.workers()});
      }
      break;
    case State::kMaking:
      if (circle.is_complete()) circle.made();
      break;
    case State::kMade:
      if (load.waits) {  // it is this circle's first broadcast
        circle.run();
      } else if (!load.going && !any(State::kWarming)) {
        circle.warm(turn_.in(limits_.make));
        for (const WorkerId worker : circle.workers())
          turn_.say(worker, {.kind = Word::Kind::kWarm, .circle = circle.id()});
        turn_.act(action::Warm{circle.id()});
      }
      break;
    case State::kWarming:
      if (circle.is_complete()) circle.run();
      break;
    case State::kRunning:
    case State::kLeaving: break;
  }
  return circle.state() != before;
}

void CircleSet::leave(Circle& circle, std::string why) {
  if (circle.state() == State::kLeaving) return;
  circle.leave(std::move(why), workers_, turn_.in(limits_.leave));
  for (const WorkerId worker : circle.workers())
    if (has(worker)) turn_.say(worker, {.kind = Word::Kind::kDrop, .circle = circle.id()});
  if (circle.is_begun()) turn_.act(action::Leave{circle.id()});
}

Circle CircleSet::take_out(CircleId id) { return std::move(circles_.extract(id).mapped()); }

void CircleSet::want_one_of_all_in(absl::Duration time) {
  if (!gathers_until_) gathers_until_ = turn_.in(time);
}

// The circle of all is made while the others serve.
void CircleSet::make_one_of_all() {
  if (!gathers_until_ || *gathers_until_ > turn_.now) return;
  gathers_until_.reset();
  if (!can_make().ok() || workers_.empty() ||
      std::ranges::any_of(circles_, [this](const auto& each) { return each.second.is_of(workers_); }))
    return;
  ask({workers_.begin(), workers_.end()});
}

// Each holds memory on every device that it spans: beside the circle of all, only one stays, and while it is used.
void CircleSet::drop_spares() {
  std::vector<Circle*> spares;
  for (auto& [id, circle] : circles_)
    if (circle.state() == State::kRunning && !circle.is_of(workers_)) spares.push_back(&circle);
  if (std::ranges::none_of(circles_, [this](const auto& each) {
        return each.second.state() == State::kRunning && each.second.is_of(workers_);
      }))
    return;
  constexpr std::uint64_t kRecent = 4;  // uses of any
  const auto kept = std::ranges::max_element(spares, {}, &Circle::used);
  for (auto each = spares.begin(); each != spares.end(); ++each)
    if (each != kept || (*each)->used() + kRecent < uses_) leave(**each, "");
}

// ---- what it knows ----

Circle* CircleSet::find(CircleId id) {
  const auto found = circles_.find(id);
  return found == circles_.end() ? nullptr : &found->second;
}

Circle* CircleSet::cover(const std::set<WorkerId>& workers, bool runs) {
  Circle* best = nullptr;
  const auto rank = [](const Circle& circle) {
    return std::pair(circle.state() == State::kRunning, circle.workers().size());
  };
  for (auto& [id, circle] : circles_) {
    if (circle.state() == State::kLeaving || (runs && circle.state() != State::kRunning)) continue;
    if (!circle.is_within(workers)) continue;
    if (best == nullptr || rank(*best) < rank(circle)) best = &circle;
  }
  return best;
}

bool CircleSet::any(State state) const {
  return std::ranges::any_of(circles_, [state](const auto& each) { return each.second.state() == state; });
}

std::vector<CircleId> CircleSet::ids() const {
  std::vector<CircleId> ids;
  for (const auto& [id, circle] : circles_) ids.push_back(id);
  return ids;
}

std::map<Circle::State, int> CircleSet::states() const {
  std::map<State, int> states;
  for (const auto& [id, circle] : circles_) ++states[circle.state()];
  return states;
}

std::optional<Clock::time_point> CircleSet::next_deadline() const {
  std::optional<Clock::time_point> next = gathers_until_;
  for (const auto& [id, circle] : circles_)
    if (const auto until = circle.until()) next = next ? std::min(*next, *until) : until;
  return next;
}

}  // namespace bascule::inline v0::nccl
