#include <bascule/schemes/nccl/circles.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

std::vector<Action> Circles::on(Event event, Clock::time_point now) {
  turn_.now = now;
  std::visit([this](auto& each) { note(each); }, event);
  work();
  const std::optional<Clock::time_point> next = next_deadline();
  if (next && next != wakes_at_) turn_.act(action::WakeAt{*next});
  wakes_at_ = next;
  // Why a version cannot be is known before the workers hear that it is over and fail for that reason.
  std::stable_partition(turn_.actions.begin(), turn_.actions.end(),
                        [](const Action& each) { return std::holds_alternative<action::Done>(each); });
  return std::exchange(turn_.actions, {});
}

// ---- events ----

void Circles::note(event::Removed& removed) {
  for (auto& [number, delivery] : deliveries_)
    for (Part& part : delivery.parts) part.awaited.erase(removed.worker);
  circles_.remove(removed.worker);
}

void Circles::note(event::Heard& heard) {
  const Word& word = heard.word;
  if (!circles_.has(heard.worker)) return;
  const bool got = word.kind == Word::Kind::kGot, failed = word.kind == Word::Kind::kFailed;
  if (got) circles_.served(heard.worker);
  if (got || (failed && word.number != 0))
    if (const auto delivery = deliveries_.find(word.number); delivery != deliveries_.end())
      needs_no_more(heard.worker, delivery->second, failed);
  if (!got) circles_.heard(heard.worker, std::move(heard.word));
}

void Circles::note(event::Wanted& wanted) {
  Delivery& delivery = deliveries_[wanted.number];
  delivery.number = wanted.number;
  delivery.version = wanted.version;
  if (poisoned()) {
    delivery.why = circles_.usable();
    return;
  }
  std::set<WorkerId> workers(wanted.workers.begin(), wanted.workers.end());
  std::erase_if(workers, [this](WorkerId worker) { return !circles_.has(worker); });
  plan(delivery, std::move(workers), 0);
}

void Circles::note(event::Stopped& stopped) {
  const auto delivery = deliveries_.find(stopped.number);
  if (delivery != deliveries_.end())
    stop(delivery->second, absl::AbortedError("nccl: the version was given up"), stopped.whole);
}

void Circles::note(event::Sent& sent) {
  Circle* const circle = circles_.find(sent.circle);
  if (circle == nullptr || circle->state() == State::kLeaving) return;
  if (!sent.status.ok()) return circles_.leave(*circle, std::string(message_of(sent.status)));
  const auto delivery = deliveries_.find(sent.number);
  if (delivery == deliveries_.end()) return;
  for (Part& part : delivery->second.parts) part.sent |= part.circle == sent.circle;
}

void Circles::note(event::Tick&) {
  wakes_at_.reset();
  circles_.end_waits();
  for (auto& [number, delivery] : deliveries_) {
    if (!delivery.until || *delivery.until > turn_.now) continue;
    delivery.until.reset();
    for (const Part& part : delivery.parts)
      circles_.leave(*circles_.find(part.circle), "pieces of a version that was given up are stuck");
  }
}

// ---- what follows ----

void Circles::work() {
  while (true) {
    const std::size_t before = turn_.actions.size(), there = circles_.size() + deliveries_.size();
    bool moved = false;
    for (const CircleId id : circles_.ids()) moved |= move_on(*circles_.find(id));
    start_parts();
    finish_deliveries();
    circles_.make_one_of_all();
    if (deliveries_.empty()) circles_.drop_spares();
    if (!moved && turn_.actions.size() == before && circles_.size() + deliveries_.size() == there) return;
  }
}

// True: it is in another state, or gone.
bool Circles::move_on(Circle& circle) {
  if (circle.state() != State::kLeaving)
    return circles_.move_on(circle, {.waits = waits_for(circle.id()), .going = going()});
  if (!circle.is_complete()) return false;
  go_on_elsewhere(circles_.take_out(circle.id()));
  return true;
}

// ---- where a delivery goes ----

void Circles::plan(Delivery& delivery, std::set<WorkerId> workers, std::uint64_t from) {
  const bool apart = delivery.tries > 0;  // a circle broke, and not by a death: a bad worker is to harm no other
  while (!workers.empty()) {
    Circle* circle = circles_.cover(workers, apart);
    if (circle == nullptr && !circles_.can_make().ok()) {  // the others go on by theirs
      for (const WorkerId worker : workers) turn_.act(action::GiveUp{worker, circles_.can_make()});
      return;
    }
    if (circle == nullptr)
      circle = &circles_.ask({workers.begin(), apart ? std::next(workers.begin()) : workers.end()});
    circles_.use(*circle);
    const std::vector<WorkerId>& covered = circle->workers();
    for (const WorkerId worker : covered) workers.erase(worker);
    delivery.parts.push_back({.circle = circle->id(), .from = from, .awaited = {covered.begin(), covered.end()}});
  }
  if (delivery.parts.size() > 1) circles_.want_one_of_all_in(apart ? limits_.make : absl::ZeroDuration());
}

// What was under way in a circle that is gone goes on in others.
void Circles::go_on_elsewhere(const Circle& left) {
  for (auto& [number, delivery] : deliveries_) {
    std::vector<Part> gone;
    std::erase_if(delivery.parts, [&](Part& part) {
      if (part.circle != left.id()) return false;
      gone.push_back(std::move(part));
      return true;
    });
    for (const Part& part : gone)
      if (!part.awaited.empty()) go_on(delivery, part, left);
  }
  if (!left.why().empty()) circles_.want_one_of_all_in(limits_.make);  // it broke by itself: not made again at once
}

// From the first piece that not all of its workers have; or it is given up.
void Circles::go_on(Delivery& delivery, const Part& part, const Circle& left) {
  if (poisoned()) delivery.why = circles_.usable();
  if (!left.is_bereft() && breaks_too_often(delivery, left)) return;
  if (delivery.stopped || !delivery.why.ok()) {
    for (const WorkerId worker : part.awaited)
      turn_.say(worker, {.kind = Word::Kind::kOver, .number = delivery.number});
    if (!delivery.stopped) stop(delivery, delivery.why, true);
    return;
  }
  std::uint64_t from = ~std::uint64_t{0};
  for (const WorkerId worker : part.awaited)
    from = std::min(from, part.going ? left.there_of(delivery.number, worker, part.from) : part.from);
  plan(delivery, part.awaited, from / piece_bytes_ * piece_bytes_);
}

// A worker that breaks even a circle of its own is given up, and the others do not wait for it: true. But if all do,
// the version is aborted.
bool Circles::breaks_too_often(Delivery& delivery, const Circle& left) {
  const std::vector<WorkerId>& workers = left.workers();
  const bool is_alone = workers.size() == 1;
  const int tries = is_alone ? delivery.tries + ++delivery.alone[workers.front()] : ++delivery.tries;
  if (tries < limits_.tries || delivery.stopped || !delivery.why.ok()) return false;
  absl::Status why = unavailable("nccl: given up behind ", tries, " communicators; the last: ", left.why());
  const bool others = !delivery.served.empty() ||
                      std::ranges::any_of(delivery.parts, [](const Part& part) { return !part.awaited.empty(); });
  if (is_alone && others) {
    turn_.act(action::GiveUp{workers.front(), std::move(why)});
    return true;
  }
  delivery.why = std::move(why);
  return false;
}

// A part that has not begun would wait for it in vain; so would one under way, in which it takes no part (`failed`).
void Circles::needs_no_more(WorkerId worker, Delivery& delivery, bool failed) {
  if (!failed) delivery.served.insert(worker);
  std::vector<Part> again;
  std::erase_if(delivery.parts, [&](Part& part) {
    if (part.awaited.erase(worker) == 0) return false;
    if (part.going) {
      if (failed) circles_.leave(*circles_.find(part.circle), "a worker takes no part in a delivery");
      return false;
    }
    again.push_back(std::move(part));
    return true;
  });
  for (Part& part : again) plan(delivery, std::move(part.awaited), part.from);
}

// ---- a delivery's path ----

void Circles::start_parts() {
  if (circles_.any(State::kWarming)) return;  // a first launch needs an idle device
  for (auto& [number, delivery] : deliveries_)
    for (Part& part : delivery.parts)
      if (!part.going && circles_.find(part.circle)->state() == State::kRunning) begin(delivery, part);
}

void Circles::begin(Delivery& delivery, Part& part) {
  part.going = true;
  turn_.act(action::Broadcast{part.circle, delivery.number, part.from});
  for (const WorkerId worker : part.awaited) {
    const bool first = delivery.told.insert(worker).second;
    Word word{.kind = first ? Word::Kind::kDeliver : Word::Kind::kAgain,
              .circle = part.circle,
              .number = delivery.number,
              .from = part.from};
    if (first) {
      turn_.act(action::Deliver{.worker = worker, .version = delivery.version, .word = std::move(word)});
    } else {
      turn_.say(worker, std::move(word));
    }
  }
}

void Circles::stop(Delivery& delivery, absl::Status why, bool whole) {
  if (std::exchange(delivery.stopped, true)) return;
  delivery.why = std::move(why);
  std::erase_if(delivery.parts, [&](const Part& part) {
    if (part.going) return false;
    for (const WorkerId worker : part.awaited)
      if (delivery.told.contains(worker)) turn_.say(worker, {.kind = Word::Kind::kOver, .number = delivery.number});
    return true;
  });
  if (delivery.parts.empty()) return;
  if (whole) {
    for (const Part& part : delivery.parts)
      circles_.leave(*circles_.find(part.circle), std::string(message_of(delivery.why)));
    return;
  }
  delivery.until = turn_.in(limits_.run_out);
  turn_.act(action::RunOut{delivery.number});
}

void Circles::finish_deliveries() {
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

bool Circles::waits_for(CircleId circle) const {
  return std::ranges::any_of(deliveries_, [circle](const auto& each) {
    return std::ranges::any_of(each.second.parts, [circle](const Part& part) { return part.circle == circle; });
  });
}

bool Circles::going() const {
  return std::ranges::any_of(deliveries_, [](const auto& each) {
    return std::ranges::any_of(each.second.parts, [](const Part& part) { return part.going; });
  });
}

std::optional<Clock::time_point> Circles::next_deadline() const {
  std::optional<Clock::time_point> next = circles_.next_deadline();
  for (const auto& [number, delivery] : deliveries_)
    if (delivery.until) next = next ? std::min(*next, *delivery.until) : delivery.until;
  return next;
}

}  // namespace bascule::inline v0::nccl
