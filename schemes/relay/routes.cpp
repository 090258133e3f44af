#include <bascule/schemes/relay/routes.h>

#include <algorithm>
#include <set>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {

std::vector<Action> Routes::on(const Event& event) {
  turn_.begin(event, {}, [this](const auto& each) { note(each); });
  return turn_.take();
}

// ---- workers ----

void Routes::note(const event::Joined& joined) { members_.try_emplace(joined.worker); }

// Its readers continue from its own source, which has the same bytes or will get them.
void Routes::note(const event::Removed& removed) {
  const auto gone = members_.extract(removed.worker);
  if (!gone) return;
  for (auto& [worker, member] : members_)
    if (std::erase(member.knows, removed.worker) > 0)
      turn_.act(action::Say{worker, {.kind = RelayMessage::Kind::kForget, .source = removed.worker}});
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, delivery] : deliveries_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    Delivery& delivery = deliveries_.at(number);
    const Leg* const leg = find(delivery, removed.worker);
    redirect(number, delivery, removed.worker, leg != nullptr ? leg->source : kTrainer);
    leave(number, removed.worker);
  }
  give_roles(gone.mapped().place);
}

void Routes::note(const event::Heard& heard) {
  const auto [worker, message] = heard;
  const auto member = members_.find(worker);
  if (member == members_.end()) return;
  switch (message.kind) {
    case RelayMessage::Kind::kInPlace: return learn(worker, Member::Reads::kInPlace);
    case RelayMessage::Kind::kBuffers: return note_buffers(worker, message);
    case RelayMessage::Kind::kHere: member->second.place = message.place; return give_roles(message.place);
    case RelayMessage::Kind::kAlone:
    case RelayMessage::Kind::kGot:
    case RelayMessage::Kind::kLeft:
    case RelayMessage::Kind::kCannot: break;
    default:
      turn_.act(action::GiveUp{
          worker, invalid_argument("it broke the relay's protocol: it sent a message that only a sender sends")});
      return;
  }
  const bool newest = member->second.delivery == message.number;
  if (newest && message.kind == RelayMessage::Kind::kLeft) member->second.has_it = false;  // possibly after `got`
  const auto found = deliveries_.find(message.number);
  if (found == deliveries_.end()) return;
  auto& [number, delivery] = *found;
  Leg* const leg = find(delivery, worker);
  if (leg == nullptr || leg->state == Leg::State::kWaiting) return;
  if (message.kind == RelayMessage::Kind::kLeft) {
    redirect(number, delivery, worker, leg->source);
    return leave(number, worker);
  }
  if (message.kind == RelayMessage::Kind::kGot) {
    leg->state = Leg::State::kGot;
    if (newest) member->second.has_it = true;
    return end_where_all_have_it(number);
  }
  if (message.kind == RelayMessage::Kind::kAlone) {
    if (newest) member->second.alone = true;
    return redirect(number, delivery, worker, leg->source);
  }
  // The trainer's slot is always there; a worker that cannot read it fails by itself.
  if (leg->state == Leg::State::kIncoming && leg->source == message.source && message.source != kTrainer)
    go_on(number, delivery, *leg, kTrainer);
}

void Routes::note_buffers(WorkerId worker, const RelayMessage& message) {
  Member& member = members_.at(worker);
  member.place = message.place;
  member.told_to_show = false;
  member.cannot_show = !message.why.empty();
  const WorkerId owner = owner_of(member.place);
  if (!member.cannot_show && (owner == kTrainer || owner == worker)) {
    for (const auto& [other, known] : members_)  // what others have mapped may be other buffers
      if (std::ranges::find(known.knows, worker) != known.knows.end()) turn_.act(action::Introduce{other, worker});
    member.has_it = message.version != 0;
    if (member.has_it) member.told = message.version, member.alone = false;
    learn(worker, Member::Reads::kCopies);
  } else if (!member.cannot_show) {
    turn_.act(action::Say{worker, {.kind = RelayMessage::Kind::kHide}});
  }
  give_roles(member.place);
}

// The worker of that place whose buffers the others share; kTrainer if there is none.
WorkerId Routes::owner_of(const std::optional<std::string>& place) const {
  for (const auto& [worker, member] : members_)
    if (place && member.place == place && member.reads == Member::Reads::kCopies) return worker;
  return kTrainer;
}

// Tells one worker of that place to show buffers. Once one does, or none can, the others share, or copy by themselves.
void Routes::give_roles(const std::optional<std::string>& place) {
  const WorkerId owner = owner_of(place);
  WorkerId next = kTrainer;
  std::vector<WorkerId> unknown;
  bool told = false, has_others = false;
  for (auto& [worker, member] : members_) {
    if (!place || member.place != place || worker == owner) continue;
    has_others = true;
    if (owner != kTrainer) member.cannot_show = false;  // it may be able to when it must
    told |= member.told_to_show;
    if (next == kTrainer && !member.cannot_show) next = worker;
    if (member.reads == Member::Reads::kUnknown) unknown.push_back(worker);
  }
  if (owner == kTrainer && !told && next != kTrainer) {
    members_.at(next).told_to_show = told = true;
    turn_.act(action::Say{next, {.kind = RelayMessage::Kind::kShow}});
  }
  if (owner == kTrainer && told) return;
  if (owner != kTrainer && has_others && !std::exchange(members_.at(owner).told_of_others, true))
    turn_.act(action::Say{owner, {.kind = RelayMessage::Kind::kShow, .share = true}});
  for (const WorkerId worker : unknown) learn(worker, Member::Reads::kShares);
}

// How a worker reads.
void Routes::learn(WorkerId worker, Member::Reads reads) {
  members_.at(worker).reads = reads;
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, delivery] : deliveries_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    Delivery& delivery = deliveries_.at(number);
    Leg* const leg = find(delivery, worker);
    if (leg == nullptr || leg->state != Leg::State::kWaiting) continue;
    if (reads == Member::Reads::kInPlace) {
      leave(number, worker);
    } else {
      start(number, delivery, *leg);
    }
  }
}

// ---- deliveries ----

void Routes::note(const event::Wanted& wanted) {
  Delivery& delivery = deliveries_[wanted.number];
  delivery.version = wanted.version;
  for (const WorkerId worker : wanted.workers) {
    const auto member = members_.find(worker);
    if (member == members_.end() || member->second.reads == Member::Reads::kInPlace) continue;
    member->second.has_it = false;  // it will write over what it has, even by the same version
    delivery.legs.push_back({.worker = worker});
  }
  // The order is stable, so that each worker copies from the same source as last time, which it has mapped.
  const auto reads = [this](const Leg& leg) { return members_.at(leg.worker).reads; };
  std::ranges::sort(delivery.legs, {}, &Leg::worker);
  std::ranges::stable_sort(delivery.legs, {}, reads);
  for (Leg& leg : delivery.legs)
    if (reads(leg) != Member::Reads::kUnknown) start(wanted.number, delivery, leg);
  end_where_all_have_it(wanted.number);
}

void Routes::note(const event::Stopped& stopped) {
  const auto found = deliveries_.find(stopped.number);
  if (found == deliveries_.end()) return;
  auto& [number, delivery] = *found;
  delivery.stopped = true;
  std::erase_if(delivery.legs, [](const Leg& leg) { return leg.state == Leg::State::kWaiting; });
  for (Leg& leg : delivery.legs) {
    if (leg.state != Leg::State::kIncoming) continue;
    leg.state = Leg::State::kStopping;
    turn_.act(action::Say{leg.worker, {.kind = RelayMessage::Kind::kOver, .number = number}});
  }
  end_where_all_have_it(number);
}

void Routes::start(std::uint64_t number, Delivery& delivery, Leg& leg) {
  Member& member = members_.at(leg.worker);
  const bool shares = member.reads == Member::Reads::kShares;
  leg.source = shares ? to_share(delivery, member) : choose(delivery, leg);
  leg.state = Leg::State::kIncoming;
  introduce(leg.worker, leg.source);
  member.told = delivery.version;
  member.delivery = number;
  member.alone = shares;
  const bool handed_on = std::ranges::count_if(delivery.legs, [this](const Leg& each) {
                           return members_.at(each.worker).reads != Member::Reads::kShares;
                         }) > 1;
  turn_.act(action::Deliver{leg.worker,
                            delivery.version,
                            {.kind = RelayMessage::Kind::kTake,
                             .number = number,
                             .source = leg.source,
                             .whole = has_all(leg.source, delivery.version),
                             .share = shares && leg.source != kTrainer,
                             .handed_on = handed_on,
                             .spared = spared(leg.worker)}});
}

// The legs that others may copy from form a tree whose root is the trainer. Each has as many children as the shape
// allows; this leg gets the next place.
SourceId Routes::choose(const Delivery& delivery, const Leg& leg) const {
  std::vector<SourceId> places;
  for (const Leg& each : delivery.legs)
    if (each.worker != leg.worker && can_serve(each.worker, delivery)) places.push_back(each.worker);
  const std::size_t degree = shape_ == RelayShape::kTree ? 2 : 1;
  if (places.size() >= degree) return places[places.size() / degree - 1];
  if (!places.empty()) return kTrainer;
  // It joins late and alone: it copies from the engine with the fewest readers rather than from the trainer.
  SourceId best = kTrainer;
  std::size_t least = 0;
  for (const auto& [worker, member] : members_) {
    if (worker == leg.worker || !has_all(worker, delivery.version)) continue;
    const std::size_t readers = this->readers(worker);
    if (best == kTrainer || readers < least) best = worker, least = readers;
  }
  return best;
}

// The engine whose copy this member shares; the trainer if no engine of its place gets or has the version.
SourceId Routes::to_share(const Delivery& delivery, const Member& member) const {
  const WorkerId owner = owner_of(member.place);
  return can_serve(owner, delivery) || has_all(owner, delivery.version) ? owner : kTrainer;
}

bool Routes::can_serve(SourceId source, const Delivery& delivery) const {
  const auto member = members_.find(source);
  return member != members_.end() && member->second.told == delivery.version && !member->second.alone &&
         std::ranges::any_of(delivery.legs, [&](const Leg& leg) {
           return leg.worker == source && (leg.state == Leg::State::kIncoming || leg.state == Leg::State::kGot);
         });
}

bool Routes::has_all(SourceId source, Version version) const {
  const auto member = members_.find(source);
  return member != members_.end() && member->second.told == version && member->second.has_it && !member->second.alone;
}

void Routes::not_introduced(WorkerId worker, SourceId engine) {
  const auto member = members_.find(worker);
  if (member != members_.end()) std::erase(member->second.knows, engine);
}

void Routes::introduce(WorkerId worker, SourceId engine) {
  if (engine == kTrainer) return;
  std::vector<SourceId>& knows = members_.at(worker).knows;
  if (std::ranges::find(knows, engine) != knows.end()) return;
  knows.push_back(engine);
  turn_.act(action::Introduce{worker, engine});
}

// All readers of `gone` copy from `to` instead.
void Routes::redirect(std::uint64_t number, Delivery& delivery, SourceId gone, SourceId to) {
  if (to != kTrainer && (!can_serve(to, delivery) || to == gone)) to = kTrainer;
  for (Leg& leg : delivery.legs)
    if (leg.state == Leg::State::kIncoming && leg.source == gone) go_on(number, delivery, leg, to);
}

void Routes::go_on(std::uint64_t number, Delivery& delivery, Leg& leg, SourceId from) {
  if (leg.source != kTrainer) leg.former.push_back(leg.source);
  leg.source = from;
  introduce(leg.worker, from);
  turn_.act(action::Say{
      leg.worker,
      {.kind = RelayMessage::Kind::kFrom, .number = number, .source = from, .whole = has_all(from, delivery.version)}});
}

void Routes::leave(std::uint64_t number, WorkerId worker) {
  std::erase_if(deliveries_.at(number).legs, [worker](const Leg& leg) { return leg.worker == worker; });
  end_where_all_have_it(number);
}

void Routes::end_where_all_have_it(std::uint64_t number) {
  const Delivery& delivery = deliveries_.at(number);
  if (!std::ranges::all_of(delivery.legs, [](const Leg& leg) { return leg.state == Leg::State::kGot; })) return;
  deliveries_.erase(number);
  turn_.act(action::Done{number});
}

bool Routes::Leg::may_read(SourceId engine) const {
  return (state == State::kIncoming || state == State::kStopping) &&
         (source == engine || std::ranges::find(former, engine) != former.end());
}

std::size_t Routes::readers(SourceId source) const {
  std::size_t count = 0;
  for (const auto& [number, delivery] : deliveries_)
    count += static_cast<std::size_t>(
        std::ranges::count_if(delivery.legs, [source](const Leg& leg) { return leg.may_read(source); }));
  return count;
}

// The versions that others read, or may still read, from its buffers, each once.
std::vector<Version> Routes::spared(WorkerId worker) const {
  std::set<Version> versions;
  for (const auto& [number, delivery] : deliveries_)
    if (std::ranges::any_of(delivery.legs, [worker](const Leg& leg) { return leg.may_read(worker); }))
      versions.insert(delivery.version);
  return {versions.begin(), versions.end()};
}

Routes::Leg* Routes::find(Delivery& delivery, WorkerId worker) {
  const auto leg = std::ranges::find(delivery.legs, worker, &Leg::worker);
  return leg == delivery.legs.end() ? nullptr : &*leg;
}

std::string_view Routes::path_of(WorkerId worker) const {
  const auto member = members_.find(worker);
  if (member == members_.end() || member->second.reads == Member::Reads::kUnknown) return {};
  return member->second.reads == Member::Reads::kInPlace ? kInPlace : kByRelay;
}

std::optional<SourceId> Routes::source_of(WorkerId worker, Version version) const {
  for (const auto& [number, delivery] : deliveries_)
    if (delivery.version == version)
      for (const Leg& leg : delivery.legs)
        if (leg.worker == worker && leg.state == Leg::State::kIncoming) return leg.source;
  return std::nullopt;
}

}  // namespace bascule::inline v0::relay
