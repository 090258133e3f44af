// The actions of a RoutesWorld's workers.
#include <algorithm>

#include "schemes/relay/routes_world.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {

using Kind = RelayMessage::Kind;

void RoutesWorld::turn(WorkerId id) {
  if (id == 0) return;
  Process& process = processes_.at(id);
  if (!process.said_how) {
    process.said_how = true;
    process.has_shown = !process.in_place && pick(4) == 0;  // it comes back with its buffers
    return tell(event::Heard{id,
                             {.kind = process.in_place    ? Kind::kInPlace
                                      : process.has_shown ? Kind::kBuffers
                                                          : Kind::kHere,
                              .place = process.place}});
  }
  if (process.to_show && pick(4) == 0) {
    process.to_show = false;
    if (pick(4) == 0)
      return tell(event::Heard{id, {.kind = Kind::kBuffers, .place = process.place, .why = "no memory"}});
    process.has_shown = true;
    process.buffers = {};
    return tell(event::Heard{id, {.kind = Kind::kBuffers, .place = process.place}});
  }
  switch (pick(4)) {
    case 0:
      if (!process.outbox.empty()) {
        const RelayMessage message = process.outbox.front();
        process.outbox.pop_front();
        tell(event::Heard{id, message});
      }
      return;
    case 1: hear(process); return;
    case 2: begin(process); return;
    default: go_on(id, process); return;
  }
}

bool RoutesWorld::hear(Process& process) {
  if (process.inbox.empty()) return false;
  const Said said = process.inbox.front();
  process.inbox.pop_front();
  const RelayMessage& message = said.message;
  if (message.kind == Kind::kTake) process.takes.push_back(said);
  if (message.kind == Kind::kEngine) process.knows.insert(message.source);
  if (message.kind == Kind::kForget) process.knows.erase(message.source);
  if (message.kind == Kind::kShow && !message.share) process.to_show = true;
  if (message.kind == Kind::kHide) process.to_show = process.has_shown = false;
  if (message.kind != Kind::kFrom && message.kind != Kind::kOver) return true;
  if (!process.incoming || process.incoming->take.number != message.number) {
    process.early.insert_or_assign(message.number, message);
    if (message.kind == Kind::kOver) process.outbox.push_back({.kind = Kind::kLeft, .number = message.number});
  } else if (message.kind == Kind::kOver) {
    process.incoming->over = true;
  } else {
    process.incoming->take.source = message.source;
    process.incoming->take.whole = message.whole;
    if (process.incoming->take.share) process.incoming->arrived = 0;  // it begins to copy
    process.incoming->take.share = process.incoming->stuck = false;
  }
  return true;
}

bool RoutesWorld::begin(Process& process) {
  if (process.incoming || process.takes.empty()) return false;
  const Said said = process.takes.front();
  process.takes.pop_front();
  Incoming incoming{.take = said.message, .version = said.version};
  if (const auto early = process.early.extract(said.message.number)) {
    incoming.over = early.mapped().kind == Kind::kOver;
    if (!incoming.over)
      incoming.take.source = early.mapped().source, incoming.take.whole = early.mapped().whole,
      incoming.take.share = false;
  }
  if (incoming.take.share) {
    process.incoming = incoming;
    return true;
  }
  const auto spared = [&](Version version) {
    return std::ranges::find(said.message.spared, version) != said.message.spared.end();
  };
  const bool full = pick(10) == 0 || !process.has_shown;
  for (std::size_t i = 0; i < process.buffers.size() && !incoming.buffer && !full; ++i) {
    Buffer& buffer = process.buffers[i];
    if (buffer.read || spared(buffer.version)) continue;
    buffer.shown = false;
    if (buffer.leases.empty()) incoming.buffer = i;
  }
  if (incoming.buffer) {
    process.buffers[*incoming.buffer] = {.version = said.version, .bytes = 0, .shown = true};
  } else {
    process.outbox.push_back({.kind = Kind::kAlone, .number = said.message.number});
  }
  process.incoming = incoming;
  return true;
}

bool RoutesWorld::go_on(WorkerId id, Process& process) {
  if (!process.incoming) return false;
  if (process.incoming->piece && pick(2) == 0) {
    arrive(process);
    return true;
  }
  const bool fails = !settling_ && pick(100) == 0;
  if (process.incoming->over || fails) {
    if (process.incoming->piece) arrive(process);
    if (fails) process.failed.insert(process.incoming->take.number);
    end(process, /*got=*/false);
    return true;
  }
  if (process.incoming->arrived == kBytes) {
    end(process, /*got=*/true);
    return true;
  }
  if (process.incoming->take.share) return share(id, process);
  return !process.incoming->piece && ask(id, process);
}

// Like RelayReceiver, leases the buffer as soon as its owner shows it, and has all once the owner has all.
bool RoutesWorld::share(WorkerId id, Process& process) {
  Incoming& incoming = *process.incoming;
  const SourceId source = incoming.take.source;
  if (incoming.stuck) return false;
  std::array<Buffer, 2>& buffers = processes_.at(source).buffers;
  const auto buffer =
      std::ranges::find_if(buffers, [&](const Buffer& each) { return each.shown && each.version == incoming.version; });
  const auto index = static_cast<std::size_t>(buffer - buffers.begin());
  if (!process.knows.contains(source) || unreachable_.contains({id, source}) ||
      (buffer == buffers.end() && incoming.take.whole) || (incoming.leased && incoming.leased->buffer != index)) {
    ask_for_another(incoming, process);
  } else if (buffer != buffers.end()) {
    if (!incoming.leased) end_leases(id);  // of the version before
    buffer->leases.insert(id);
    incoming.leased = UnderWay{.source = source, .buffer = index};
    incoming.arrived = buffer->bytes;
  }
  return true;
}

void RoutesWorld::end_leases(WorkerId id) {
  for (auto& [owner, process] : processes_)
    for (Buffer& buffer : process.buffers) buffer.leases.erase(id);
}

void RoutesWorld::ask_for_another(Incoming& incoming, Process& process) {
  incoming.stuck = true;
  process.outbox.push_back({.kind = Kind::kCannot, .number = incoming.take.number, .source = incoming.take.source});
}

// Like RelayReceiver, copies from the source that it was told last, as far as that shows.
bool RoutesWorld::ask(WorkerId id, Process& process) {
  Incoming& incoming = *process.incoming;
  const SourceId source = incoming.take.source;
  if (source == kTrainer) {
    if (written_.at(incoming.version) > incoming.arrived) incoming.piece = UnderWay{};
    return true;
  }
  if (incoming.stuck) return false;
  const std::array<Buffer, 2>& buffers = processes_.at(source).buffers;
  const auto buffer =
      std::ranges::find_if(buffers, [&](const Buffer& each) { return each.shown && each.version == incoming.version; });
  if (!process.knows.contains(source) || unreachable_.contains({id, source}) ||
      (buffer == buffers.end() && incoming.take.whole)) {
    ask_for_another(incoming, process);
  } else if (buffer != buffers.end() && buffer->bytes > incoming.arrived) {
    incoming.piece = UnderWay{.source = source, .buffer = static_cast<std::size_t>(buffer - buffers.begin())};
  }
  return true;
}

// If the buffer now holds another version, the wrong bytes came.
void RoutesWorld::arrive(Process& process) {
  Incoming& incoming = *process.incoming;
  const UnderWay piece = *std::exchange(incoming.piece, std::nullopt);
  const bool wanted = !orders_.at(incoming.take.number).stopped;
  if (piece.source != kTrainer && wanted)
    expect(processes_.at(piece.source).buffers[piece.buffer].version == incoming.version,
           cat("a buffer of worker ", piece.source, " was rewritten while it was read"));
  ++incoming.arrived;
  if (incoming.buffer) process.buffers[*incoming.buffer].bytes = incoming.arrived;
}

void RoutesWorld::end(Process& process, bool got) {
  const Incoming incoming = *std::exchange(process.incoming, std::nullopt);
  const std::uint64_t number = incoming.take.number;
  process.outbox.push_back({.kind = got ? Kind::kGot : Kind::kLeft, .number = number});
  process.early.erase(number);
  if (got) process.got.insert(number);
  if (incoming.buffer && !got) process.buffers[*incoming.buffer].shown = false;
  if (!got || pick(4) == 0) return;  // it was aborted later
  for (Buffer& buffer : process.buffers) buffer.read = false;
  if (incoming.buffer) process.buffers[*incoming.buffer].read = true;
}

}  // namespace bascule::inline v0::relay
