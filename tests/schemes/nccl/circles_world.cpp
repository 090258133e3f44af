#include "schemes/nccl/circles_world.h"

#include <algorithm>
#include <array>
#include <utility>

#include <bascule/transport/text.h>

namespace bascule::inline v0::nccl {
namespace {

constexpr std::array<const char*, 13> kNames = {"ask",   "ready", "make", "made", "warm",    "warmed", "deliver",
                                                "again", "got",   "over", "drop", "dropped", "failed"};
std::string text_of(const Word& word) {
  return cat(kNames[static_cast<std::size_t>(word.kind)], " (circle ", word.circle, ", delivery ", word.number,
             ", from ", word.from, ")");
}

}  // namespace

CirclesWorld::CirclesWorld(std::uint64_t seed) : faults_(seed % 4), circles_(limits_, kPiece) {}

std::string CirclesWorld::run(const std::vector<Step>& steps) {
  for (const Step& each : steps) {
    if (!wrong_.empty()) return wrong_;
    step(each);
  }
  finish();
  return wrong_;
}

void CirclesWorld::expect(bool holds, std::string_view what) {
  if (!holds && wrong_.empty()) wrong_ = what;
}

// ---- what must always hold ----

void CirclesWorld::tell(Event event) {
  ++events_;
  const bool ticks = std::holds_alternative<event::Tick>(event);
  for (Action& action : circles_.on(std::move(event), now_)) {
    if (const auto* wake = std::get_if<action::WakeAt>(&action)) {
      expect(!ticks || wake->at > now_, "a tick wants the next one at once");
      wakes_at_ = wake->at;
    }
    carry_out(action);
  }
  int warming = 0;
  for (const auto& [state, count] : circles_.states())
    if (state == Circles::State::kWarming) warming += count;
  expect(warming <= 1, "two circles warm at a time");
}

void CirclesWorld::carry_out(Action& action) {
  const auto reaches = [&](WorkerId id, std::string_view what) {
    expect(workers_.contains(id), cat(what, " to worker ", id, ", which is gone"));
    return workers_.contains(id);
  };
  if (auto* say = std::get_if<action::Say>(&action)) {
    trace_ += cat("  to ", say->worker, ": ", text_of(say->word), "\n");
    if (!reaches(say->worker, text_of(say->word))) return;
    const Word& word = say->word;
    if (word.kind == Word::Kind::kAgain) {
      Delivery& delivery = deliveries_.at(word.number);
      expect(delivery.told.contains(say->worker), "again before deliver");
      const CircleId before = delivery.told[say->worker];
      expect(workers_.at(say->worker).given_up || fabrics_.at(before).heard_dropped.contains(say->worker),
             cat("again to worker ", say->worker, " before it said dropped of circle ", before));
      expect(!delivery.got.contains(say->worker), "again to a worker that has it all");
      delivery.told[say->worker] = word.circle;
    }
    workers_.at(say->worker).inbox.push_back(word);
  } else if (auto* deliver = std::get_if<action::Deliver>(&action)) {
    trace_ += cat("  to ", deliver->worker, ": ", text_of(deliver->word), "\n");
    if (!reaches(deliver->worker, "deliver")) return;
    Delivery& delivery = deliveries_.at(deliver->word.number);
    expect(delivery.workers.contains(deliver->worker), "a delivery to a worker that it is not for");
    expect(delivery.told.emplace(deliver->worker, deliver->word.circle).second, "deliver twice");
    workers_.at(deliver->worker).inbox.push_back(deliver->word);
  } else if (auto* gives_up = std::get_if<action::GiveUp>(&action)) {
    trace_ += cat("  gives up ", gives_up->worker, ": ", message_of(gives_up->why), "\n");
    if (!reaches(gives_up->worker, "a give-up")) return;
    workers_.at(gives_up->worker).given_up = true;
    to_remove_.insert(gives_up->worker);
  } else if (auto* make = std::get_if<action::Make>(&action)) {
    trace_ += cat("  makes circle ", make->circle, "\n");
    expect(!fabrics_.contains(make->circle), "a circle's number is used again");
    expect(!circles_.poisoned(), "a communicator is made in a process that is poisoned");
    Fabric& fabric = fabrics_[make->circle];
    fabric.workers = make->workers;
    fabric.ranks[0].joined = true;
    int rank = 0;
    for (const WorkerId id : make->workers) {
      fabric.ranks[id];
      ++rank;
      if (reaches(id, "make"))
        workers_.at(id).inbox.push_back({.kind = Word::Kind::kMake,
                                         .circle = make->circle,
                                         .rank = rank,
                                         .ranks = static_cast<int>(make->workers.size()) + 1});
    }
  } else if (auto* warm = std::get_if<action::Warm>(&action)) {
    trace_ += cat("  warms circle ", warm->circle, "\n");
    post_own(warm->circle, {});
  } else if (auto* broadcast = std::get_if<action::Broadcast>(&action)) {
    trace_ += cat("  broadcasts delivery ", broadcast->number, " in circle ", broadcast->circle, " from ",
                  broadcast->from, "\n");
    Fabric& fabric = fabrics_.at(broadcast->circle);
    expect(fabric.own_made, "a broadcast in a circle that this end has not made");
    for (const WorkerId id : fabric.workers)
      expect(fabric.heard_made.contains(id), cat("a broadcast in a circle that worker ", id, " has not made"));
    expect(!circles_.states().contains(Circles::State::kWarming), "a broadcast begins while a circle warms");
    expect(broadcast->from % kPiece == 0, "a broadcast begins in the middle of a piece");
    expect(!fabric.left, "a broadcast in a circle that is left");
    post_own(broadcast->circle, {.number = broadcast->number, .from = broadcast->from});
  } else if (auto* runs_out = std::get_if<action::RunOut>(&action)) {
    trace_ += cat("  delivery ", runs_out->number, " runs out\n");
    deliveries_.at(runs_out->number).ran_out = true;
  } else if (auto* leave = std::get_if<action::Leave>(&action)) {
    trace_ += cat("  leaves circle ", leave->circle, "\n");
    Fabric& fabric = fabrics_.at(leave->circle);
    expect(!fabric.left, "a circle is left twice");
    fabric.left = true;
    fabric.ranks[0].gone = true;
    own_[leave->circle].push_back(event::Left{leave->circle});
  } else if (auto* done = std::get_if<action::Done>(&action)) {
    trace_ += cat("  delivery ", done->number, " is done: ", done->status.ToString(), "\n");
    Delivery& delivery = deliveries_.at(done->number);
    expect(!std::exchange(delivery.done, true), "done twice");
    if (!done->status.ok()) return;
    for (const WorkerId id : delivery.workers)
      expect(!workers_.contains(id) || delivery.got.contains(id) || delivery.refused.contains(id),
             cat("done, but worker ", id, " has not got it"));
  }
}

// ---- steps ----

void CirclesWorld::step(Step step) {
  const std::uint32_t kind = step.what % 64, what = step.what / 64;
  const auto pick = [&](const auto& map) {
    return std::next(map.begin(), static_cast<std::ptrdiff_t>(step.which % map.size()))->first;
  };
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
    if (!workers_.empty()) worker_turn(pick(workers_), fails);
  } else if (kind < 46) {
    if (!workers_.empty()) hear_worker(pick(workers_));
  } else if (kind < 53) {
    if (!own_.empty()) own_turn(pick(own_));
  } else if (!fabrics_.empty()) {
    const CircleId circle =
        std::prev(fabrics_.end(),
                  1 + static_cast<std::ptrdiff_t>(step.which % std::min<std::size_t>(fabrics_.size(), 4)))
            ->first;
    const auto& ranks = fabrics_.at(circle).ranks;
    move(circle, std::next(ranks.begin(), static_cast<std::ptrdiff_t>(what % ranks.size()))->first);
  }
}

void CirclesWorld::join() {
  if (workers_.size() >= 5) return;
  const WorkerId id = next_worker_++;
  trace_ += cat("worker ", id, " joins\n");
  workers_[id];
  tell(event::Joined{id});
}

void CirclesWorld::remove(WorkerId id) {
  trace_ += cat("worker ", id, " is removed\n");
  workers_.erase(id);
  to_remove_.erase(id);
  for (auto& [circle, fabric] : fabrics_)
    if (fabric.ranks.contains(id)) fabric.ranks[id].gone = true;
  tell(event::Removed{id});
}

// A worker is sent one version at a time; one that was given up may still be on its way to it.
bool CirclesWorld::is_busy(WorkerId id) const {
  return std::ranges::any_of(deliveries_, [id](const auto& each) {
    return !each.second.done && !each.second.stopped && each.second.workers.contains(id);
  });
}

void CirclesWorld::want(std::uint32_t which) {
  Delivery delivery;
  for (const auto& [id, worker] : workers_)
    if (!is_busy(id) && (which % 3 != 0 || which / 3 >> id % 8 & 1)) delivery.workers.insert(id);
  if (delivery.workers.empty() && which % 16 != 0) return;
  delivery.written = which / 4096 % 2 == 0;
  const std::uint64_t number = next_delivery_++;
  trace_ += cat("delivery ", number, " is wanted");
  for (const WorkerId id : delivery.workers) trace_ += cat(" by ", id);
  trace_ += "\n";
  deliveries_[number] = delivery;
  tell(event::Wanted{
      .number = number, .version = number, .workers = {delivery.workers.begin(), delivery.workers.end()}});
}

void CirclesWorld::stop(std::uint32_t which) {
  for (auto& [number, delivery] : deliveries_) {
    if (delivery.done || delivery.stopped || (which + number) % 3 != 0) continue;
    trace_ += cat("delivery ", number, " is stopped", delivery.written ? ", whole" : "", "\n");
    delivery.stopped = true;
    return tell(event::Stopped{.number = number, .whole = delivery.written});
  }
}

void CirclesWorld::pass(Clock::duration time) {
  now_ += time;
  if (!wakes_at_ || *wakes_at_ > now_) return;
  wakes_at_.reset();
  trace_ += "a tick\n";
  tell(event::Tick{});
}

void CirclesWorld::fault(std::uint32_t what, std::uint32_t which) {
  if (what % 4 < 2 && !workers_.empty()) {
    auto& [id, worker] = *std::next(workers_.begin(), which % static_cast<std::ptrdiff_t>(workers_.size()));
    worker.silent = !worker.silent;
    trace_ += cat("worker ", id, worker.silent ? " falls silent\n" : " wakes\n");
  } else if (!fabrics_.empty()) {
    auto& [circle, fabric] = *std::prev(fabrics_.end());
    if (what % 4 == 2 && !fabric.left) {
      fabric.ranks[0].broken = true;
      Rank& rank = fabric.ranks[0];
      trace_ += cat("this end's rank of circle ", circle, " breaks\n");
      if (!rank.made) {
        rank.made = true;
        own_[circle].push_back(event::Made{.circle = circle, .status = absl::UnavailableError("it broke")});
      }
      for (; rank.at < rank.posted.size(); ++rank.at)
        sent(circle, rank.posted[rank.at], absl::UnavailableError("it broke"));
    } else if (!workers_.empty() && which % 8 != 0) {
      break_a_rank(std::next(workers_.begin(), which / 8 % static_cast<std::ptrdiff_t>(workers_.size()))->first);
    } else if (which / 8 % 8 == 0 && !fabric.left) {
      trace_ += cat("an abort of circle ", circle, " would hang\n");
      fabric.hangs = true;
    }
  }
}

// Of a worker, where it takes part in a broadcast.
void CirclesWorld::break_a_rank(WorkerId id) {
  for (auto& [circle, fabric] : fabrics_) {
    const auto rank = fabric.ranks.find(id);
    if (rank == fabric.ranks.end() || rank->second.gone || rank->second.at >= rank->second.posted.size()) continue;
    trace_ += cat("worker ", id, "'s rank of circle ", circle, " breaks\n");
    rank->second.broken = true;
    workers_.at(id).outbox.push_back({.kind = Word::Kind::kFailed, .circle = circle, .why = "it broke"});
  }
}

// ---- the workers ----

bool CirclesWorld::worker_turn(WorkerId id, bool fails) {
  Worker& worker = workers_.at(id);
  if (worker.silent) return false;
  for (auto& [circle, fabric] : fabrics_) {  // an init that has come to its end
    const auto found = fabric.ranks.find(id);
    if (found == fabric.ranks.end()) continue;
    Rank& rank = found->second;
    const bool all = std::ranges::all_of(fabric.ranks, [](const auto& each) { return each.second.joined; });
    if (!rank.joined || rank.made || rank.gone || !(all || fails)) continue;
    rank.made = true;
    rank.broken |= fails;
    worker.outbox.push_back({.kind = fails ? Word::Kind::kFailed : Word::Kind::kMade, .circle = circle});
    return true;
  }
  if (worker.inbox.empty()) return false;
  const Word word = worker.inbox.front();
  worker.inbox.pop_front();
  trace_ += cat("worker ", id, " hears ", text_of(word), fails ? ", and fails" : "", "\n");
  hear(id, word, fails);
  return true;
}

void CirclesWorld::hear(WorkerId id, const Word& word, bool fails) {
  Worker& worker = workers_.at(id);
  const auto fabric = fabrics_.find(word.circle);
  Rank* const rank = fabric == fabrics_.end() ? nullptr : &fabric->second.ranks.at(id);
  switch (word.kind) {
    case Word::Kind::kAsk:
      worker.outbox.push_back({.kind = fails ? Word::Kind::kFailed : Word::Kind::kReady, .circle = word.circle});
      return;
    case Word::Kind::kMake: rank->joined = true; return;
    case Word::Kind::kWarm: rank->posted.push_back({}); return;
    case Word::Kind::kDrop: return drop(id, word.circle);
    case Word::Kind::kDeliver: worker.receives.push_back(word); return begin_receives(id);
    case Word::Kind::kAgain:
    case Word::Kind::kOver:
      worker.early[word.number] = word;
      if (worker.coming && worker.coming->number == word.number) {
        worker.early.erase(word.number);
        if (word.kind == Word::Kind::kAgain) return take_part(id, word);
        worker.coming.reset();
      }
      return begin_receives(id);
    default: expect(false, cat("the sender said ", text_of(word)));
  }
}

// It has no room for it.
void CirclesWorld::refuse(WorkerId id, const Word& word) {
  deliveries_.at(word.number).refused.insert(id);
  Rank& rank = fabrics_.at(word.circle).ranks.at(id);
  Worker& worker = workers_.at(id);
  worker.outbox.push_back({.kind = Word::Kind::kFailed, .circle = word.circle, .number = word.number});
  if (rank.gone) return;
  rank.gone = true;
  worker.outbox.push_back({.kind = Word::Kind::kDropped, .circle = word.circle});
}

void CirclesWorld::begin_receives(WorkerId id) {
  Worker& worker = workers_.at(id);
  while (!worker.coming && !worker.receives.empty()) {
    worker.coming = worker.receives.front();
    worker.receives.pop_front();
    worker.there = 0;
    Word word = *worker.coming;
    if (const auto early = worker.early.extract(word.number)) word = early.mapped();
    if (word.kind == Word::Kind::kOver)
      worker.coming.reset();
    else
      take_part(id, word);
  }
}

void CirclesWorld::take_part(WorkerId id, const Word& word) {
  Worker& worker = workers_.at(id);
  Rank& rank = fabrics_.at(word.circle).ranks.at(id);
  expect(word.from <= worker.there, cat("delivery ", word.number, " goes on behind what worker ", id, " has"));
  worker.there = word.from;
  if (!rank.gone) rank.posted.push_back({.number = word.number, .from = word.from});
}

void CirclesWorld::drop(WorkerId id, CircleId circle) {
  Worker& worker = workers_.at(id);
  if (const auto fabric = fabrics_.find(circle); fabric != fabrics_.end()) fabric->second.ranks.at(id).gone = true;
  worker.outbox.push_back({.kind = Word::Kind::kDropped,
                           .circle = circle,
                           .number = worker.coming ? worker.coming->number : 0,
                           .from = worker.coming ? worker.there : 0});
}

bool CirclesWorld::hear_worker(WorkerId id) {
  Worker& worker = workers_.at(id);
  if (worker.outbox.empty()) return false;
  const Word word = worker.outbox.front();
  worker.outbox.pop_front();
  trace_ += cat("worker ", id, " said ", text_of(word), "\n");
  if (word.kind == Word::Kind::kMade) fabrics_.at(word.circle).heard_made.insert(id);
  if (word.kind == Word::Kind::kDropped && fabrics_.contains(word.circle))
    fabrics_.at(word.circle).heard_dropped.insert(id);
  if (word.kind == Word::Kind::kGot) deliveries_.at(word.number).got.insert(id);
  tell(event::Heard{.worker = id, .word = word});
  return true;
}

// ---- communicators ----

bool CirclesWorld::own_turn(CircleId circle) {
  std::deque<Event>& events = own_.at(circle);
  const auto is_left = [&] { return std::holds_alternative<event::Left>(events.front()); };
  if (events.empty() || (is_left() && fabrics_.at(circle).hangs)) return false;
  Event event = std::move(events.front());
  events.pop_front();
  if (const auto* made = std::get_if<event::Made>(&event)) fabrics_.at(circle).own_made = made->status.ok();
  trace_ += cat("this end of circle ", circle, ": event ", event.index(), "\n");
  tell(std::move(event));
  return true;
}

// One piece further.
bool CirclesWorld::move(CircleId circle, WorkerId id) {
  Fabric& fabric = fabrics_.at(circle);
  Rank& rank = fabric.ranks.at(id);
  const auto all = [&](auto is) {
    return std::ranges::all_of(fabric.ranks, [&](const auto& each) { return is(each.second); });
  };
  if (id == 0 && !rank.made && !rank.gone && all([](const Rank& each) { return each.joined; })) {
    rank.made = true;
    own_[circle].push_back(event::Made{.circle = circle, .status = absl::OkStatus()});
    return true;
  }
  if (rank.gone || rank.at >= rank.posted.size()) return false;
  if (!all([&](const Rank& each) {
        return each.posted.size() > rank.at && (each.at > rank.at || (!each.gone && !each.broken));
      }))
    return false;
  if (id != 0 && workers_.contains(id) && workers_.at(id).silent) return false;
  const Posted posted = rank.posted[rank.at];
  expect(all([&](const Rank& each) { return each.posted[rank.at] == posted; }),
         cat("circle ", circle, " pairs broadcasts of different deliveries"));
  if (posted.number != 0) {
    const Delivery& delivery = deliveries_.at(posted.number);
    if (!delivery.written && !delivery.ran_out) return false;
  }
  rank.progress = std::max(rank.progress, posted.from) + kPiece;
  const std::uint64_t bytes = posted.number == 0 ? kPiece : kBytes;
  if (id != 0 && workers_.contains(id)) {
    Worker& worker = workers_.at(id);
    if (worker.coming && worker.coming->number == posted.number) worker.there = std::min(rank.progress, bytes);
  }
  if (rank.progress < bytes) return true;
  ++rank.at;
  rank.progress = 0;
  came(id, circle, posted);
  return true;
}

void CirclesWorld::sent(CircleId circle, const Posted& posted, absl::Status status) {
  if (posted.number == 0) return own_[circle].push_back(event::Warmed{.circle = circle, .status = std::move(status)});
  own_[circle].push_back(event::Sent{.circle = circle, .number = posted.number, .status = std::move(status)});
}

void CirclesWorld::post_own(CircleId circle, const Posted& posted) {
  Rank& rank = fabrics_.at(circle).ranks[0];
  rank.posted.push_back(posted);
  if (!rank.broken) return;
  ++rank.at;
  sent(circle, posted, absl::UnavailableError("it broke"));
}

void CirclesWorld::came(WorkerId id, CircleId circle, const Posted& posted) {
  if (id == 0) {
    sent(circle, posted, absl::OkStatus());
    return;
  }
  Worker& worker = workers_.at(id);
  if (posted.number == 0) return worker.outbox.push_back({.kind = Word::Kind::kWarmed, .circle = circle});
  if (!worker.coming || worker.coming->number != posted.number) return;
  worker.coming.reset();
  worker.outbox.push_back({.kind = Word::Kind::kGot, .number = posted.number});
  begin_receives(id);
}

// ---- every wait ends ----

bool CirclesWorld::turn_all(bool removes) {
  bool moved = false;
  while (removes && !to_remove_.empty()) remove(*to_remove_.begin()), moved = true;
  std::vector<WorkerId> ids;
  for (const auto& [id, worker] : workers_) ids.push_back(id);
  for (const WorkerId id : ids) {
    if (workers_.contains(id)) moved |= worker_turn(id, false);
    if (workers_.contains(id)) moved |= hear_worker(id);
  }
  std::vector<CircleId> circles;
  for (const auto& [circle, fabric] : fabrics_) circles.push_back(circle);
  for (const CircleId circle : circles) {
    std::vector<WorkerId> ranks;
    for (const auto& [id, rank] : fabrics_.at(circle).ranks) ranks.push_back(id);
    for (const WorkerId id : ranks) moved |= move(circle, id);
    if (own_.contains(circle)) moved |= own_turn(circle);
  }
  return moved;
}

void CirclesWorld::settle(std::string_view what) {
  for (int ticks = 0; ticks < 40 && wrong_.empty(); ++ticks) {
    int turns = 0;
    while (turn_all(/*removes=*/true) && wrong_.empty()) {
      if (++turns < 5000) continue;
      return expect(false, cat(what, ": it never comes to rest"));
    }
    if (!wakes_at_) return;
    pass(std::max(*wakes_at_ - now_, Clock::duration()));
  }
  expect(false, cat(what, ": deadlines without end"));
}

void CirclesWorld::finish() {
  trace_ += "no more faults\n";
  for (auto& [number, delivery] : deliveries_) delivery.written |= !delivery.stopped;
  std::set<WorkerId> silent;
  for (auto& [id, worker] : workers_)
    if (worker.silent) silent.insert(id);
  for (const WorkerId id : silent) remove(id);
  settle("with no more faults");
  if (!wrong_.empty()) return;
  for (const auto& [number, delivery] : deliveries_) expect(delivery.done, cat("delivery ", number, " is never done"));
  for (const auto& [id, worker] : workers_)
    expect(!worker.coming && worker.receives.empty(), cat("worker ", id, " waits for ever"));
  expect(circles_.deliveries() == 0, "a delivery is left");
  const std::map<Circles::State, int> states = circles_.states();
  for (const auto& [state, count] : states) expect(state == Circles::State::kRunning, "a circle comes nowhere");
  if (!circles_.poisoned() && !workers_.empty()) {
    const auto is_of_all = [&](const auto& each) {
      return !each.second.left && each.second.workers.size() == workers_.size() &&
             std::ranges::all_of(each.second.workers, [&](WorkerId id) { return workers_.contains(id); });
    };
    expect(std::ranges::any_of(fabrics_, is_of_all), "there is no circle of all");
  }
  int running = 0;
  for (const auto& [state, count] : states) running += count;
  expect(circles_.poisoned() || running <= 2, "circles that nobody needs stay");
  while (!workers_.empty()) remove(workers_.begin()->first);
  settle("without workers");
  expect(circles_.states().empty(), "a circle without workers stays");
}

}  // namespace bascule::inline v0::nccl
