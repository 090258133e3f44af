#include <bascule/schemes/nccl/delivery_planner.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

std::vector<Action> DeliveryPlanner::on(Event event, Clock::time_point now) {
  turn_.begin(event, now, [this](auto& each) { note(each); });
  work();
  const std::optional<Clock::time_point> next = next_deadline();
  if (next && next != wakes_at_) turn_.act(action::WakeAt{*next});
  wakes_at_ = next;
  // Done has the reason, so it comes before the `over` messages, after which workers fail with a less exact one.
  std::stable_partition(turn_.actions.begin(), turn_.actions.end(),
                        [](const Action& each) { return std::holds_alternative<action::Done>(each); });
  return turn_.take();
}

// ---- events ----

void DeliveryPlanner::note(event::Removed& removed) {
  for (auto& [number, delivery] : deliveries_)
    for (Part& part : delivery.parts) part.awaited.erase(removed.worker);
  groups_.remove(removed.worker);
}

void DeliveryPlanner::note(event::Heard& heard) {
  const GroupMessage& message = heard.message;
  if (!groups_.has(heard.worker)) return;
  const bool got = message.kind == GroupMessage::Kind::kGot, failed = message.kind == GroupMessage::Kind::kFailed;
  if (got) groups_.served(heard.worker);
  if (got || (failed && message.number != 0))
    if (const auto delivery = deliveries_.find(message.number); delivery != deliveries_.end())
      needs_no_more(heard.worker, delivery->second, failed);
  if (!got) groups_.heard(heard.worker, std::move(heard.message));
}

void DeliveryPlanner::note(event::Wanted& wanted) {
  Delivery& delivery = deliveries_[wanted.number];
  delivery.number = wanted.number;
  delivery.version = wanted.version;
  if (poisoned()) {
    delivery.why = groups_.usable();
    return;
  }
  std::set<WorkerId> workers(wanted.workers.begin(), wanted.workers.end());
  std::erase_if(workers, [this](WorkerId worker) { return !groups_.has(worker); });
  plan(delivery, std::move(workers), 0);
}

void DeliveryPlanner::note(event::Stopped& stopped) {
  const auto delivery = deliveries_.find(stopped.number);
  if (delivery != deliveries_.end())
    stop(delivery->second, absl::AbortedError("nccl: the version was given up"), stopped.whole);
}

void DeliveryPlanner::note(event::Sent& sent) {
  CommGroup* const group = groups_.find(sent.group);
  if (group == nullptr || group->state() == State::kLeaving) return;
  if (!sent.status.ok()) return groups_.leave(*group, std::string(message_of(sent.status)));
  const auto delivery = deliveries_.find(sent.number);
  if (delivery == deliveries_.end()) return;
  for (Part& part : delivery->second.parts) part.sent |= part.group == sent.group;
}

void DeliveryPlanner::note(event::Tick&) {
  wakes_at_.reset();
  groups_.end_waits();
  for (auto& [number, delivery] : deliveries_) {
    if (!delivery.until || *delivery.until > turn_.now) continue;
    delivery.until.reset();
    for (const Part& part : delivery.parts)
      groups_.leave(*groups_.find(part.group), "pieces of a version that was given up are stuck");
  }
}

// ---- the groups' life ----

void DeliveryPlanner::work() {
  while (true) {
    const std::size_t before = turn_.actions.size(), there = groups_.size() + deliveries_.size();
    bool moved = false;
    for (const CommGroupId id : groups_.ids()) moved |= move_on(*groups_.find(id));
    start_parts();
    finish_deliveries();
    groups_.make_one_of_all();
    if (deliveries_.empty()) groups_.drop_spares();
    if (!moved && turn_.actions.size() == before && groups_.size() + deliveries_.size() == there) return;
  }
}

// Returns true if its state changed or it is gone.
bool DeliveryPlanner::move_on(CommGroup& group) {
  if (group.state() != State::kLeaving)
    return groups_.move_on(group, {.waits = waits_for(group.id()), .going = going()});
  if (!group.is_complete()) return false;
  go_on_elsewhere(groups_.take_out(group.id()));
  return true;
}

// ---- a delivery's groups ----

void DeliveryPlanner::plan(Delivery& delivery, std::set<WorkerId> workers, std::uint64_t from) {
  const bool apart = delivery.tries > 0;  // a group broke, but no worker died: one bad worker must not harm the others
  while (!workers.empty()) {
    CommGroup* group = groups_.cover(workers, apart);
    if (group == nullptr && !groups_.can_make().ok()) {  // the others continue through their groups
      for (const WorkerId worker : workers) turn_.act(action::GiveUp{worker, groups_.can_make()});
      return;
    }
    if (group == nullptr) group = &groups_.ask({workers.begin(), apart ? std::next(workers.begin()) : workers.end()});
    groups_.use(*group);
    const std::vector<WorkerId>& covered = group->workers();
    for (const WorkerId worker : covered) workers.erase(worker);
    delivery.parts.push_back({.group = group->id(), .from = from, .awaited = {covered.begin(), covered.end()}});
  }
  if (delivery.parts.size() > 1) groups_.want_one_of_all_in(apart ? limits_.make : absl::ZeroDuration());
}

// Deliveries that were under way in a group that is gone continue in others.
void DeliveryPlanner::go_on_elsewhere(const CommGroup& left) {
  for (auto& [number, delivery] : deliveries_) {
    std::vector<Part> gone;
    std::erase_if(delivery.parts, [&](Part& part) {
      if (part.group != left.id()) return false;
      gone.push_back(std::move(part));
      return true;
    });
    for (const Part& part : gone)
      if (!part.awaited.empty()) go_on(delivery, part, left);
  }
  if (!left.why().empty()) groups_.want_one_of_all_in(limits_.make);  // it broke by itself: wait a while
}

// Continues from the first piece that not all of its workers have, or gives the delivery up.
void DeliveryPlanner::go_on(Delivery& delivery, const Part& part, const CommGroup& left) {
  if (poisoned()) delivery.why = groups_.usable();
  if (!left.is_bereft() && breaks_too_often(delivery, left)) return;
  if (delivery.stopped || !delivery.why.ok()) {
    for (const WorkerId worker : part.awaited)
      turn_.act(action::Say{worker, {.kind = GroupMessage::Kind::kOver, .number = delivery.number}});
    if (!delivery.stopped) stop(delivery, delivery.why, true);
    return;
  }
  std::uint64_t from = ~std::uint64_t{0};
  for (const WorkerId worker : part.awaited)
    from = std::min(from, part.going ? left.there_of(delivery.number, worker, part.from) : part.from);
  plan(delivery, part.awaited, from / piece_bytes_ * piece_bytes_);
}

// Gives up a worker that breaks even a group of one, so that the others do not wait, and returns true. If all workers
// do so, the version is aborted.
bool DeliveryPlanner::breaks_too_often(Delivery& delivery, const CommGroup& left) {
  const std::vector<WorkerId>& workers = left.workers();
  const bool is_alone = workers.size() == 1;
  const int tries = is_alone ? delivery.tries + ++delivery.alone[workers.front()] : ++delivery.tries;
  if (tries < limits_.tries || delivery.stopped || !delivery.why.ok()) return false;
  absl::Status why = unavailable("nccl: given up after ", tries, " communicators; the last: ", left.why());
  const bool others = !delivery.served.empty() ||
                      std::ranges::any_of(delivery.parts, [](const Part& part) { return !part.awaited.empty(); });
  if (is_alone && others) {
    turn_.act(action::GiveUp{workers.front(), std::move(why)});
    return true;
  }
  delivery.why = std::move(why);
  return false;
}

// A part that has not begun would wait for this worker in vain, and so would a part under way in which the worker takes
// no part (`failed`).
void DeliveryPlanner::needs_no_more(WorkerId worker, Delivery& delivery, bool failed) {
  if (!failed) delivery.served.insert(worker);
  std::vector<Part> again;
  std::erase_if(delivery.parts, [&](Part& part) {
    if (part.awaited.erase(worker) == 0) return false;
    if (part.going) {
      if (failed) groups_.leave(*groups_.find(part.group), "a worker takes no part in a delivery");
      return false;
    }
    again.push_back(std::move(part));
    return true;
  });
  for (Part& part : again) plan(delivery, std::move(part.awaited), part.from);
}

// ---- a delivery's path ----

void DeliveryPlanner::start_parts() {
  if (groups_.any(State::kWarming)) return;  // a first launch needs an idle device
  for (auto& [number, delivery] : deliveries_)
    for (Part& part : delivery.parts)
      if (!part.going && groups_.find(part.group)->state() == State::kRunning) begin(delivery, part);
}

void DeliveryPlanner::begin(Delivery& delivery, Part& part) {
  part.going = true;
  turn_.act(action::Broadcast{part.group, delivery.number, part.from});
  for (const WorkerId worker : part.awaited) {
    const bool first = delivery.told.insert(worker).second;
    GroupMessage message{.kind = first ? GroupMessage::Kind::kDeliver : GroupMessage::Kind::kAgain,
                         .group = part.group,
                         .number = delivery.number,
                         .from = part.from};
    if (first) {
      turn_.act(action::Deliver{.worker = worker, .version = delivery.version, .message = std::move(message)});
    } else {
      turn_.act(action::Say{worker, std::move(message)});
    }
  }
}

void DeliveryPlanner::stop(Delivery& delivery, absl::Status why, bool whole) {
  if (std::exchange(delivery.stopped, true)) return;
  delivery.why = std::move(why);
  std::erase_if(delivery.parts, [&](const Part& part) {
    if (part.going) return false;
    for (const WorkerId worker : part.awaited)
      if (delivery.told.contains(worker))
        turn_.act(action::Say{worker, {.kind = GroupMessage::Kind::kOver, .number = delivery.number}});
    return true;
  });
  if (delivery.parts.empty()) return;
  if (whole) {
    for (const Part& part : delivery.parts)
      groups_.leave(*groups_.find(part.group), std::string(message_of(delivery.why)));
    return;
  }
  delivery.until = turn_.in(limits_.run_out);
  turn_.act(action::RunOut{delivery.number});
}

void DeliveryPlanner::finish_deliveries() {
  for (auto each = deliveries_.begin(); each != deliveries_.end();) {
    Delivery& delivery = each->second;
    std::erase_if(delivery.parts, [](const Part& part) { return part.going && part.sent && part.awaited.empty(); });
    if (!delivery.parts.empty()) {
      ++each;
      continue;
    }
    turn_.act(action::Done{.number = delivery.number, .status = delivery.why});
    each = deliveries_.erase(each);
  }
}

bool DeliveryPlanner::waits_for(CommGroupId group) const {
  return std::ranges::any_of(deliveries_, [group](const auto& each) {
    return std::ranges::any_of(each.second.parts, [group](const Part& part) { return part.group == group; });
  });
}

bool DeliveryPlanner::going() const {
  return std::ranges::any_of(deliveries_, [](const auto& each) {
    return std::ranges::any_of(each.second.parts, [](const Part& part) { return part.going; });
  });
}

std::optional<Clock::time_point> DeliveryPlanner::next_deadline() const {
  std::optional<Clock::time_point> next = groups_.next_deadline();
  for (const auto& [number, delivery] : deliveries_)
    if (delivery.until) next = next ? std::min(*next, *delivery.until) : delivery.until;
  return next;
}

}  // namespace bascule::inline v0::nccl
