#include <bascule/schemes/nccl/circles.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <bascule/transport/text.h>

namespace bascule::inline v0::nccl {
namespace {

absl::Status poisoned_status() {
  return failed_precondition(
      "nccl: an abort of a communicator of this process has not come back, and what it uses cannot be used again; "
      "restart this process");
}

}  // namespace

std::vector<Action> Circles::on(Event event, Clock::time_point now) {
  now_ = now;
  std::visit([this](auto& each) { note(each); }, event);
  work();
  const std::optional<Clock::time_point> next = next_deadline();
  if (next && next != wakes_at_) act(action::WakeAt{*next});
  wakes_at_ = next;
  // Why a version cannot be is known before the workers hear that it is over and fail for that reason.
  std::stable_partition(actions_.begin(), actions_.end(),
                        [](const Action& each) { return std::holds_alternative<action::Done>(each); });
  return std::exchange(actions_, {});
}

// ---- events ----

void Circles::note(event::Joined& joined) {
  workers_.insert(joined.worker);
  gathers_until_ = now_ + absl::ToChronoNanoseconds(limits_.gather);
}

void Circles::note(event::Removed& removed) {
  workers_.erase(removed.worker);
  strikes_.erase(removed.worker);
  for (auto& [number, delivery] : deliveries_)
    for (Part& part : delivery.parts) part.awaited.erase(removed.worker);
  for (auto& [id, circle] : circles_) {
    circle.awaited.erase(removed.worker);
    if (std::ranges::find(circle.workers, removed.worker) == circle.workers.end()) continue;
    circle.bereft = true;
    leave(circle, "one of its workers is gone");
  }
  gathers_until_ = now_ + absl::ToChronoNanoseconds(limits_.gather);
}

void Circles::note(event::Heard& heard) {
  Word& word = heard.word;
  if (!workers_.contains(heard.worker)) return;
  const bool failed = word.kind == Word::Kind::kFailed;
  if (word.kind == Word::Kind::kGot || (failed && word.number != 0))
    if (const auto delivery = deliveries_.find(word.number); delivery != deliveries_.end())
      needs_no_more(heard.worker, delivery->second, failed);
  if (word.kind == Word::Kind::kGot) return;
  Circle* const circle = find(word.circle);
  if (circle == nullptr || std::ranges::find(circle->workers, heard.worker) == circle->workers.end()) return;
  switch (word.kind) {
    case Word::Kind::kReady:
      if (circle->state == State::kAsking) circle->awaited.erase(heard.worker);
      return;
    case Word::Kind::kMade:
      if (circle->state == State::kMaking) circle->awaited.erase(heard.worker);
      return;
    case Word::Kind::kWarmed:
      if (circle->state == State::kWarming) circle->awaited.erase(heard.worker);
      return;
    case Word::Kind::kDropped:
      if (circle->state != State::kLeaving) return;
      circle->awaited.erase(heard.worker);
      circle->left[heard.worker] = std::move(word);
      return;
    case Word::Kind::kFailed: return broken(heard.worker, *circle, word.why);
    default: act(action::GiveUp{heard.worker, invalid_argument("nccl: it said a word that is a sender's")});
  }
}

void Circles::note(event::Wanted& wanted) {
  Delivery& delivery = deliveries_[wanted.number];
  delivery.number = wanted.number;
  delivery.version = wanted.version;
  if (poisoned_) {
    delivery.why = poisoned_status();
    return;
  }
  std::set<WorkerId> workers(wanted.workers.begin(), wanted.workers.end());
  std::erase_if(workers, [this](WorkerId worker) { return !workers_.contains(worker); });
  plan(delivery, std::move(workers), 0);
}

void Circles::note(event::Stopped& stopped) {
  const auto delivery = deliveries_.find(stopped.number);
  if (delivery != deliveries_.end())
    stop(delivery->second, absl::AbortedError("nccl: the version was given up"), stopped.whole);
}

void Circles::note(event::Made& made) {
  Circle* const circle = find(made.circle);
  if (circle == nullptr || circle->state != State::kMaking) return;
  circle->own_awaited = false;
  if (!made.status.ok()) leave(*circle, std::string(message_of(made.status)));
}

void Circles::note(event::Warmed& warmed) {
  Circle* const circle = find(warmed.circle);
  if (circle == nullptr || circle->state != State::kWarming) return;
  circle->own_awaited = false;
  if (!warmed.status.ok()) leave(*circle, std::string(message_of(warmed.status)));
}

void Circles::note(event::Sent& sent) {
  Circle* const circle = find(sent.circle);
  if (circle == nullptr || circle->state == State::kLeaving) return;
  if (!sent.status.ok()) return leave(*circle, std::string(message_of(sent.status)));
  const auto delivery = deliveries_.find(sent.number);
  if (delivery == deliveries_.end()) return;
  for (Part& part : delivery->second.parts) part.sent |= part.circle == sent.circle;
}

void Circles::note(event::Left& left) {
  if (Circle* const circle = find(left.circle)) circle->own_awaited = false;
}

void Circles::note(event::Tick&) {
  wakes_at_.reset();
  const auto give_up = [this](Circle& circle, std::string_view what, absl::Duration limit) {
    for (const WorkerId worker : std::exchange(circle.awaited, {}))
      act(action::GiveUp{worker, deadline_exceeded("nccl: it ", what, " within ", absl::FormatDuration(limit))});
  };
  for (auto& [id, circle] : circles_) {
    if (circle.until > now_) continue;
    switch (circle.state) {
      case State::kAsking:
        give_up(circle, "did not say that it can join a communicator", limits_.ask);
        leave(circle, "not all workers answered");
        break;
      case State::kMaking:
      case State::kWarming:
        // No rank is done before all have come. Which one did not, shows a circle that it is alone in.
        if (circle.workers.size() == 1) give_up(circle, "did not join a communicator", limits_.make);
        leave(circle, "not all ranks came");
        break;
      case State::kLeaving:
        give_up(circle, "did not leave a communicator", limits_.leave);
        if (std::exchange(circle.own_awaited, false)) {
          poisoned_ = true;
          act(action::Log{std::string(message_of(poisoned_status()))});
        }
        break;
      case State::kMade:
      case State::kRunning: break;
    }
  }
  for (auto& [number, delivery] : deliveries_) {
    if (!delivery.until || *delivery.until > now_) continue;
    delivery.until.reset();
    for (const Part& part : delivery.parts)
      leave(*find(part.circle), "pieces of a version that was given up are stuck");
  }
}

// ---- what follows ----

void Circles::work() {
  while (true) {
    const std::size_t before = actions_.size(), there = circles_.size() + deliveries_.size();
    bool moved = false;
    std::vector<CircleId> ids;
    for (const auto& [id, circle] : circles_) ids.push_back(id);
    for (const CircleId id : ids)
      if (Circle* const circle = find(id)) moved |= move_on(*circle);
    start_parts();
    finish_deliveries();
    make_one_of_all();
    drop_spares();
    if (!moved && actions_.size() == before && circles_.size() + deliveries_.size() == there) return;
  }
}

// True: it is in another state.
bool Circles::move_on(Circle& circle) {
  const bool all = circle.awaited.empty() && !circle.own_awaited;
  const auto await_all = [&](State state) {
    circle.state = state;
    circle.own_awaited = true;
    circle.awaited.insert(circle.workers.begin(), circle.workers.end());
    circle.until = now_ + absl::ToChronoNanoseconds(limits_.make);
  };
  const State before = circle.state;
  switch (circle.state) {
    case State::kAsking:
      if (poisoned_) {
        leave(circle, std::string(message_of(poisoned_status())));
        return true;
      }
      if (!all) return false;
      await_all(State::kMaking);
      circle.begun = true;
      act(action::Make{circle.id, circle.workers});
      return true;
    case State::kMaking:
      if (all) circle.state = State::kMade;
      break;
    case State::kMade:
      if (in_use(circle.id)) {  // what waits for it is its first broadcast
        circle.state = State::kRunning;
      } else if (!going() && !any(State::kWarming)) {
        await_all(State::kWarming);
        for (const WorkerId worker : circle.workers) say(worker, {.kind = Word::Kind::kWarm, .circle = circle.id});
        act(action::Warm{circle.id});
      }
      break;
    case State::kWarming:
      if (all) circle.state = State::kRunning;
      break;
    case State::kRunning: break;
    case State::kLeaving:
      if (!all) return false;
      forget(circle.id);
      return true;
  }
  if (circle.state == State::kRunning && before != State::kRunning)
    for (const WorkerId worker : circle.workers) strikes_.erase(worker);
  return circle.state != before;
}

// ---- circles ----

Circles::Circle& Circles::ask(std::vector<WorkerId> workers) {
  const CircleId id = next_++;
  Circle& circle = circles_[id];
  circle.id = id;
  circle.workers = std::move(workers);
  circle.awaited.insert(circle.workers.begin(), circle.workers.end());
  circle.until = now_ + absl::ToChronoNanoseconds(limits_.ask);
  for (const WorkerId worker : circle.workers) say(worker, {.kind = Word::Kind::kAsk, .circle = id});
  return circle;
}

void Circles::leave(Circle& circle, std::string why) {
  if (circle.state == State::kLeaving) return;
  circle.state = State::kLeaving;
  circle.why = std::move(why);
  circle.awaited.clear();
  circle.own_awaited = circle.begun;
  circle.until = now_ + absl::ToChronoNanoseconds(limits_.leave);
  for (const WorkerId worker : circle.workers) {
    if (!workers_.contains(worker)) continue;
    say(worker, {.kind = Word::Kind::kDrop, .circle = circle.id});
    if (circle.begun) circle.awaited.insert(worker);
  }
  if (circle.begun) act(action::Leave{circle.id});
}

// What was under way in it goes on in others, from the first piece that not all of its workers have.
void Circles::forget(CircleId id) {
  const Circle circle = std::move(circles_.extract(id).mapped());
  for (auto& [number, delivery] : deliveries_) {
    std::vector<Part> gone;
    std::erase_if(delivery.parts, [&](Part& part) {
      if (part.circle != id) return false;
      gone.push_back(std::move(part));
      return true;
    });
    for (const Part& part : gone) {
      std::set<WorkerId> workers = part.awaited;
      if (workers.empty()) continue;
      if (poisoned_) delivery.why = poisoned_status();
      if (!circle.bereft && ++delivery.tries >= limits_.tries && delivery.why.ok() && !delivery.stopped)
        delivery.why = unavailable("nccl: given up behind ", delivery.tries, " communicators; the last: ", circle.why);
      if (delivery.stopped || !delivery.why.ok()) {
        for (const WorkerId worker : workers) say(worker, {.kind = Word::Kind::kOver, .number = number});
        if (!delivery.stopped) stop(delivery, delivery.why, true);
        continue;
      }
      std::uint64_t from = ~std::uint64_t{0};
      for (const WorkerId worker : workers) {
        const auto left = circle.left.find(worker);
        const bool had = part.going && left != circle.left.end() && left->second.number == number;
        from = std::min(from, had ? std::max(left->second.from, part.from) : part.from);
      }
      plan(delivery, std::move(workers), from / piece_bytes_ * piece_bytes_);
    }
  }
  if (gathers_until_ || circle.why.empty()) return;
  gathers_until_ =
      now_ + absl::ToChronoNanoseconds(limits_.make);  // one that broke by itself is not made again at once
}

// A part that has not begun would wait for it in vain; so would one under way, in which it takes no part (`failed`).
void Circles::needs_no_more(WorkerId worker, Delivery& delivery, bool failed) {
  std::vector<Part> again;
  std::erase_if(delivery.parts, [&](Part& part) {
    if (part.awaited.erase(worker) == 0) return false;
    if (part.going) {
      if (failed) leave(*find(part.circle), "a worker takes no part in a delivery");
      return false;
    }
    again.push_back(std::move(part));
    return true;
  });
  for (Part& part : again) plan(delivery, std::move(part.awaited), part.from);
}

void Circles::broken(WorkerId worker, Circle& circle, const std::string& why) {
  if (circle.state == State::kLeaving) return;
  // In a circle that runs it may be another one's death that broke it.
  const bool joined = circle.state == State::kMade || circle.state == State::kRunning;
  if (!joined && ++strikes_[worker] >= limits_.tries)
    act(action::GiveUp{worker, absl::AbortedError(cat("nccl: ", why))});
  leave(circle, why.empty() ? "a worker failed in it without a word why" : why);
}

Circles::Circle* Circles::find(CircleId id) {
  const auto found = circles_.find(id);
  return found == circles_.end() ? nullptr : &found->second;
}

Circles::Circle* Circles::cover(const std::set<WorkerId>& workers, bool runs) {
  Circle* best = nullptr;
  const auto rank = [](const Circle& circle) {
    return std::pair(circle.state == State::kRunning, circle.workers.size());
  };
  for (auto& [id, circle] : circles_) {
    if (circle.state == State::kLeaving || (runs && circle.state != State::kRunning)) continue;
    if (!std::ranges::all_of(circle.workers, [&](WorkerId worker) { return workers.contains(worker); })) continue;
    if (best == nullptr || rank(*best) < rank(circle)) best = &circle;
  }
  return best;
}

bool Circles::in_use(CircleId id) const {
  return std::ranges::any_of(deliveries_, [id](const auto& each) {
    return std::ranges::any_of(each.second.parts, [id](const Part& part) { return part.circle == id; });
  });
}

bool Circles::is_of_all(const Circle& circle) const {
  return circle.state != State::kLeaving && circle.workers.size() == workers_.size() &&
         std::ranges::all_of(circle.workers, [this](WorkerId worker) { return workers_.contains(worker); });
}

bool Circles::any(State state) const {
  return std::ranges::any_of(circles_, [state](const auto& each) { return each.second.state == state; });
}

// The circle of all is made while the others serve.
void Circles::make_one_of_all() {
  if (!gathers_until_ || *gathers_until_ > now_) return;
  gathers_until_.reset();
  if (poisoned_ || workers_.empty() ||
      std::ranges::any_of(circles_, [this](const auto& each) { return is_of_all(each.second); }))
    return;
  ask({workers_.begin(), workers_.end()});
}

// Each holds memory on every device that it spans: beside the circle of all, only one stays, and while it is used.
void Circles::drop_spares() {
  const auto runs = [this](const auto& each) { return each.second.state == State::kRunning && is_of_all(each.second); };
  if (!deliveries_.empty() || std::ranges::none_of(circles_, runs)) return;
  constexpr std::uint64_t kRecent = 4;  // uses of any
  Circle* kept = nullptr;
  for (auto& [id, circle] : circles_) {
    if (circle.state != State::kRunning || is_of_all(circle) || circle.used + kRecent < uses_) continue;
    if (kept == nullptr || kept->used < circle.used) kept = &circle;
  }
  for (auto& [id, circle] : circles_)
    if (circle.state == State::kRunning && !is_of_all(circle) && &circle != kept) leave(circle, "");
}

// ---- deliveries ----

void Circles::plan(Delivery& delivery, std::set<WorkerId> workers, std::uint64_t from) {
  const bool apart = delivery.tries > 0;  // a circle broke, and not by a death: a bad worker is to harm no other
  while (!workers.empty()) {
    Circle* circle = cover(workers, apart);
    if (circle == nullptr) circle = &ask({workers.begin(), apart ? std::next(workers.begin()) : workers.end()});
    circle->used = ++uses_;
    for (const WorkerId worker : circle->workers) workers.erase(worker);
    delivery.parts.push_back(
        {.circle = circle->id, .from = from, .awaited = {circle->workers.begin(), circle->workers.end()}});
  }
  if (delivery.parts.size() > 1 && !gathers_until_)
    gathers_until_ = now_ + absl::ToChronoNanoseconds(apart ? limits_.make : absl::ZeroDuration());
}

bool Circles::going() const {
  return std::ranges::any_of(deliveries_, [](const auto& each) {
    return std::ranges::any_of(each.second.parts, [](const Part& part) { return part.going; });
  });
}

void Circles::start_parts() {
  if (any(State::kWarming)) return;  // a first launch needs an idle device
  for (auto& [number, delivery] : deliveries_) {
    for (Part& part : delivery.parts) {
      const Circle& circle = *find(part.circle);
      if (part.going || circle.state != State::kRunning) continue;
      part.going = true;
      act(action::Broadcast{circle.id, number, part.from});
      for (const WorkerId worker : part.awaited) {
        const bool first = delivery.told.insert(worker).second;
        Word word{.kind = first ? Word::Kind::kDeliver : Word::Kind::kAgain,
                  .circle = circle.id,
                  .number = number,
                  .from = part.from};
        if (first) {
          act(action::Deliver{.worker = worker, .version = delivery.version, .word = std::move(word)});
        } else {
          say(worker, std::move(word));
        }
      }
    }
  }
}

void Circles::finish_deliveries() {
  for (auto each = deliveries_.begin(); each != deliveries_.end();) {
    Delivery& delivery = each->second;
    std::erase_if(delivery.parts, [](const Part& part) { return part.going && part.sent && part.awaited.empty(); });
    if (!delivery.parts.empty()) {
      ++each;
      continue;
    }
    act(action::Done{.number = delivery.number, .status = delivery.why});
    each = deliveries_.erase(each);
  }
}

void Circles::stop(Delivery& delivery, absl::Status why, bool whole) {
  if (std::exchange(delivery.stopped, true)) return;
  delivery.why = std::move(why);
  std::erase_if(delivery.parts, [&](const Part& part) {
    if (part.going) return false;
    for (const WorkerId worker : part.awaited)
      if (delivery.told.contains(worker)) say(worker, {.kind = Word::Kind::kOver, .number = delivery.number});
    return true;
  });
  if (delivery.parts.empty()) return;
  if (whole) {
    for (const Part& part : delivery.parts) leave(*find(part.circle), std::string(message_of(delivery.why)));
    return;
  }
  delivery.until = now_ + absl::ToChronoNanoseconds(limits_.run_out);
  act(action::RunOut{delivery.number});
}

// ---- time, and what is known ----

std::optional<Clock::time_point> Circles::next_deadline() const {
  std::optional<Clock::time_point> next = gathers_until_;
  const auto consider = [&](Clock::time_point at) { next = next ? std::min(*next, at) : at; };
  for (const auto& [id, circle] : circles_)
    if (circle.state != State::kMade && circle.state != State::kRunning) consider(circle.until);
  for (const auto& [number, delivery] : deliveries_)
    if (delivery.until) consider(*delivery.until);
  return next;
}

std::map<Circles::State, int> Circles::states() const {
  std::map<State, int> states;
  for (const auto& [id, circle] : circles_) ++states[circle.state];
  return states;
}

}  // namespace bascule::inline v0::nccl
