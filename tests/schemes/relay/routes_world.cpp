#include "schemes/relay/routes_world.h"

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {

using Kind = RelayMessage::Kind;

RoutesWorld::RoutesWorld(std::uint64_t seed)
    : random_(seed), routes_(seed % 2 == 0 ? RelayShape::kChain : RelayShape::kTree) {}

void RoutesWorld::expect(bool holds, std::string what) {
  if (!holds && wrong_.empty()) wrong_ = std::move(what);
}

std::string RoutesWorld::run(int steps) {
  for (int i = 0; i < steps && wrong_.empty(); ++i) step();
  settle();
  return wrong_;
}

void RoutesWorld::step() {
  const std::uint64_t what = pick(64);
  if (what == 0) return join();
  if (what == 1) return remove(some_member());
  if (what == 2) return stop();
  if (what <= 6) return want();
  if (what <= 10 && !written_.empty()) {
    std::uint64_t& newest = written_.rbegin()->second;
    newest = std::min(kBytes, newest + 1 + pick(kBytes));
    return;
  }
  for (int i = 0; i < 8; ++i) turn(some_member());  // most deliveries end before the next begins
}

WorkerId RoutesWorld::some_member() {
  std::vector<WorkerId> members;
  for (const auto& [id, process] : processes_)
    if (process.member) members.push_back(id);
  return members.empty() ? 0 : members[pick(members.size())];
}

// ---- what happens to Routes ----

void RoutesWorld::tell(const Event& event) {
  ++events_;
  note(event);
  for (const Action& action : routes_.on(event)) carry_out(action);
  check_routes();
}

// Applies a message's effects before Routes gets it.
void RoutesWorld::note(const Event& event) {
  if (const auto* heard = std::get_if<event::Heard>(&event)) {
    const RelayMessage& message = heard->message;
    if (message.kind == Kind::kInPlace)
      for (auto& [number, order] : orders_) order.waiting.erase(heard->worker);
    if (const auto order = orders_.find(message.number); order != orders_.end()) {
      if (message.kind == Kind::kAlone) alone_.emplace(heard->worker, order->second.version);
      if (message.kind == Kind::kGot || message.kind == Kind::kLeft) order->second.open.erase(heard->worker);
    }
  }
  if (const auto* removed = std::get_if<event::Removed>(&event))
    for (auto& [number, order] : orders_)
      for (auto* const of : {&order.waiting, &order.open, &order.workers}) of->erase(removed->worker);
  if (const auto* stopped = std::get_if<event::Stopped>(&event)) {
    Order& order = orders_.at(stopped->number);
    order.stopped = true;
    order.waiting.clear();
  }
}

void RoutesWorld::carry_out(const Action& action) {
  if (const auto* introduced = std::get_if<action::Introduce>(&action)) {
    expect(introduced_.emplace(introduced->worker, introduced->engine).second, "introduced twice");
    processes_.at(introduced->worker)
        .inbox.push_back({.message = {.kind = Kind::kEngine, .source = introduced->engine}});
  } else if (const auto* deliver = std::get_if<action::Deliver>(&action)) {
    Order& order = orders_.at(deliver->message.number);
    expect(order.waiting.erase(deliver->worker) == 1, "delivered twice, or to a stranger");
    expect(order.version == deliver->version, "another version was delivered");
    order.open.insert(deliver->worker);
    std::erase_if(alone_, [&](const auto& each) { return each.first == deliver->worker; });
    check_source(deliver->worker, deliver->message.number, deliver->message.source);
    if (deliver->message.share) {
      const Process& owner = processes_.at(deliver->message.source);
      expect(owner.has_shown && owner.place == processes_.at(deliver->worker).place, "shares what it cannot reach");
    }
    processes_.at(deliver->worker).inbox.push_back({.message = deliver->message, .version = deliver->version});
  } else if (const auto* say = std::get_if<action::Say>(&action)) {
    expect(processes_.at(say->worker).member, "a message to one that is gone");
    if (say->message.kind == Kind::kFrom) check_source(say->worker, say->message.number, say->message.source);
    processes_.at(say->worker).inbox.push_back({.message = say->message});
  } else if (const auto* done = std::get_if<action::Done>(&action)) {
    Order& order = orders_.at(done->number);
    expect(!std::exchange(order.done, true), cat("delivery ", done->number, " was done twice"));
    expect(order.open.empty() && order.waiting.empty(), cat("delivery ", done->number, " was done too early"));
    for (const auto& [id, process] : processes_)
      expect(!process.member || !process.incoming || process.incoming->take.number != done->number ||
                 !process.incoming->piece,
             cat("delivery ", done->number, " was done while worker ", id, " copied"));
  } else {
    expect(false, "a worker that did nothing wrong was given up");
  }
}

void RoutesWorld::check_source(WorkerId worker, std::uint64_t number, SourceId source) {
  sources_[{worker, number}] = source;
  if (source == kTrainer) return;
  const auto process = processes_.find(source);
  expect(process != processes_.end() && process->second.member, cat("worker ", worker, " is sent to one that is gone"));
  expect(source != worker, cat("worker ", worker, " is sent to itself"));
  expect(introduced_.contains({worker, source}), cat("worker ", worker, " does not know worker ", source));
  expect(process == processes_.end() || process->second.has_shown, "a source without buffers");
  expect(!alone_.contains({source, orders_.at(number).version}),
         cat("worker ", worker, " is sent to one that is alone"));
}

void RoutesWorld::check_routes() {
  std::size_t under_way = 0;
  for (const auto& [number, order] : orders_) {
    under_way += order.done ? 0 : 1;
    expect(order.done == (order.open.empty() && order.waiting.empty()), cat("delivery ", number, " does not end"));
    for (WorkerId at : order.open) {
      std::set<WorkerId> on_the_way;
      while (at != kTrainer && order.open.contains(at) && on_the_way.insert(at).second) at = sources_[{at, number}];
      expect(!on_the_way.contains(at) || !order.open.contains(at), cat("delivery ", number, " goes in a circle"));
    }
  }
  expect(routes_.deliveries() == under_way, "deliveries are forgotten, or kept");
}

// ---- what the sender does ----

void RoutesWorld::join() {
  const WorkerId id = next_worker_++;
  Process& process = processes_[id];
  process.in_place = pick(8) == 0;
  process.place = cat("GPU ", pick(4));
  for (const auto& [other, _] : processes_)
    if (pick(10) == 0) unreachable_.emplace(id, other);
  tell(event::Joined{id});
}

void RoutesWorld::remove(WorkerId id) {
  if (id == 0) return;
  processes_.at(id).member = false;  // it might continue alone for a while; here it stops
  end_leases(id);
  tell(event::Removed{id});
  std::erase_if(introduced_, [id](const auto& each) { return each.first == id || each.second == id; });
}

// Its back slot is free: only stopped deliveries still come.
bool RoutesWorld::is_free(WorkerId id) const {
  return std::ranges::none_of(orders_, [id](const auto& each) {
    const Order& order = each.second;
    return !order.stopped && (order.waiting.contains(id) || order.open.contains(id));
  });
}

// Sends the newest version once more, also to workers that have it, or the next version.
void RoutesWorld::want() {
  const std::uint64_t number = next_number_++;
  Order order;
  const bool catch_up = !written_.empty() && written_.rbegin()->second == kBytes && pick(2) == 0;
  if (!catch_up && !written_.empty()) written_.rbegin()->second = kBytes;
  order.version = catch_up ? written_.rbegin()->first : written_.size() + 1;
  written_.try_emplace(order.version, 0);
  const std::uint64_t most = catch_up ? 2 : 8;
  for (const auto& [id, process] : processes_)
    if (process.member && is_free(id) && order.workers.size() < most) order.workers.insert(id);
  for (const WorkerId id : order.workers)
    if (const Process& process = processes_.at(id); !process.said_how || !process.in_place) order.waiting.insert(id);
  orders_[number] = order;
  tell(event::Wanted{
      .number = number, .version = order.version, .workers = {order.workers.begin(), order.workers.end()}});
}

void RoutesWorld::stop() {
  for (const auto& [number, order] : orders_)
    if (!order.done && !order.stopped && pick(3) == 0) return tell(event::Stopped{number});
}

// ---- everybody goes on until nothing happens: who lives gets all that is not stopped ----

void RoutesWorld::settle() {
  settling_ = true;
  for (auto& [version, bytes] : written_) bytes = kBytes;
  for (int quiet = 0; quiet < 12 && wrong_.empty(); ++quiet) {
    const std::uint64_t before = events_;
    for (auto& [id, process] : processes_)
      for (int i = 0; process.member && i < 40 && wrong_.empty(); ++i) turn(id);
    if (events_ != before) quiet = 0;
  }
  for (const auto& [number, order] : orders_) {
    expect(order.done, cat("delivery ", number, " never ended"));
    if (order.stopped) continue;
    for (const WorkerId id : order.workers) {
      const Process& process = processes_.at(id);
      expect(process.in_place || process.got.contains(number) || process.failed.contains(number),
             cat("worker ", id, " never got delivery ", number));
    }
  }
}

}  // namespace bascule::inline v0::relay
