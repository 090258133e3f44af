// RandomWorld: the workers' processes.
#include "sender/fleet/random_world.h"  // first: see there

#include <algorithm>
#include <array>

namespace bascule::test {

void RandomWorld::worker_step(Process& process, std::uint32_t what) {
  if (!process.connection) return connect(process, what);
  if (process.rogue && what % 2 == 0) return talk_nonsense(process, what / 2);
  const std::uint32_t kind = what % 64;
  if (kind == 0) {
    trace_ += cat(process.name, " hangs up\n");
    const WorkerId id = *process.connection;
    lose_connection(process);
    tell_and_look(event::HungUp{id, absl::UnavailableError("the peer hung up")});
  } else if (kind == 1) {
    die(process, what / 64 % 2 == 0);
  } else if (kind == 2 && what / 64 % 4 == 0) {
    trace_ += cat(process.name, " is poisoned\n");
    process.serving = 0;
    if (what / 256 % 2 == 0) process.serves.reset();  // its copy is late: it reads the slot until that is done
    speak(process, Poisoned{.why = "it says so", .final = false});
  } else if (kind < 10) {
    release_one(process);
  } else {
    hear_next(process, what / 64);
  }
}

void RandomWorld::connect(Process& process, std::uint32_t what) {
  Hello hello;
  hello.worker = process.name;
  hello.instance = process.instance;
  hello.group = process.group;
  hello.rank = process.rank;
  hello.ranks = process.group.empty() ? 1 : 3;
  hello.casts = !process.group.empty();
  hello.epoch = process.serving > 0 ? kEpoch : 0;
  hello.serving = process.serving;
  for (const auto& [slot, version] : process.reads) hello.held.push_back({.slot = slot, .version = version});
  if (process.rogue) hello.serving = what % 5;
  if (process.rogue && what % 7 == 0) hello.held.push_back({.slot = {kEpoch, what / 7 % 3}, .version = what % 9});
  failing_admissions = what / 64 % 16 == 0 ? 1 : 0;
  process.leases.clear();
  trace_ += cat(process.name, " greets, serving ", hello.serving, failing_admissions > 0 ? ", in vain" : "", "\n");
  if (!process.group.empty()) committed_[process.name] = process.serving;
  process.connection = peers.size() + 1;  // as FleetWorld numbers them
  ++events_;
  greet(std::move(hello));
  look();
  failing_admissions = 0;
}

void RandomWorld::lose_connection(Process& process) {
  process.connection.reset();
  process.preparing.reset();
  if (single_copy() && process.aside) process.serving = 0;  // poisoned: the writer may be writing it
  process.aside = false;
}

void RandomWorld::die(Process& process, bool pipe_first) {
  trace_ += cat(process.name, " dies\n");
  Process corpse = process;
  const std::optional<WorkerId> id = process.connection;
  lose_connection(corpse);
  process = {.name = process.name,
             .group = process.group,
             .rank = process.rank,
             .instance = next_instance_++,
             .rogue = process.rogue};
  if (pipe_first) {
    tell_and_look(event::HolderGone{corpse.instance});
  } else {
    dead_[corpse.instance] = corpse;
  }
  if (id) tell_and_look(event::HungUp{*id, absl::UnavailableError("the peer hung up")});
}

void RandomWorld::speak(Process& process, Message message) {
  if (peers.at(*process.connection).closed) return;  // it has not noticed yet
  tell_and_look(event::Heard{*process.connection, std::move(message)});
}

// Ends a read of a version that it no longer serves. It reports that, unless a version is coming in that slot: then its
// lease continues.
void RandomWorld::release_one(Process& process) {
  for (const auto& [slot, version] : process.reads) {
    if (slot == process.serves) continue;
    trace_ += cat(process.name, " releases slot ", slot.index, "\n");
    const SlotId gone = slot;
    process.reads.erase(gone);
    if (process.preparing && process.preparing->slot == gone) return;
    return speak(process, Released{.slot = gone, .lease = std::exchange(process.leases[gone], 0)});
  }
}

void RandomWorld::hear_next(Process& process, std::uint32_t what) {
  Peer& peer = peers.at(*process.connection);
  if (peer.said.empty()) {
    if (peer.closed) lose_connection(process);
    return;
  }
  const Message message = std::move(peer.said.front());
  peer.said.pop_front();
  if (!process.rogue) hear(process, message, what);
}

void RandomWorld::hear(Process& process, const Message& message, std::uint32_t what) {
  trace_ += cat(process.name, " hears ", name_of(message), "\n");
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    expect(prepare->version >= process.serving, cat(process.name, " is told of an older version"));
    process.preparing = *prepare;
    process.leases[prepare->slot] = prepare->lease;
    if (single_copy() && !process.reads.empty()) process.aside = true;
    speak(process, Ready{.version = prepare->version, .copies_behind = what % 3 == 0});
  } else if (const auto* sealed = std::get_if<Sealed>(&message)) {
    if (what % 12 == 0) return speak(process, Failed{.version = sealed->version, .why = "this once"});
    speak(process, Prepared{.version = sealed->version});
    if (sealed->decided && process.preparing && process.preparing->version == sealed->version)
      take(process, sealed->version);
  } else if (const auto* decided = std::get_if<Decided>(&message)) {
    take(process, decided->version);
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    process.aside = false;
    const std::optional<Prepare> dropped = std::exchange(process.preparing, std::nullopt);
    if (abort->torn && !process.reads.empty()) {
      process.serving = 0;
      return speak(process, Poisoned{.why = "it may be half written", .final = false});
    }
    if (dropped && !process.reads.contains(dropped->slot))
      speak(process, Released{.slot = dropped->slot, .lease = std::exchange(process.leases[dropped->slot], 0)});
  }
}

void RandomWorld::take(Process& process, Version version) {
  flip(process, version);
  speak(process, Ack{.version = version, .stall_seconds = 0, .seconds = 0});
}

void RandomWorld::flip(Process& process, Version version) {
  expect(process.preparing && process.preparing->version == version,
         cat(process.name, " is to flip to version ", version, ", of which it was not told"));
  if (!process.preparing) return;
  const SlotId slot = process.preparing->slot;
  expect(version >= process.serving, cat(process.name, " flips back to version ", version));
  expect(single_copy() || written_ != slot, cat(process.name, " flips to slot ", slot.index, ", which is written"));
  process.preparing.reset();
  process.aside = false;
  process.serving = version;
  process.serves = slot;
  process.reads[slot] = version;
}

void RandomWorld::talk_nonsense(Process& process, std::uint32_t what) {
  const Version version = fleet.published() + what / 16 % 3;
  const std::array<Message, 9> words = {Ready{.version = version, .copies_behind = true},
                                        Prepared{.version = version},
                                        Failed{.version = version, .why = "nonsense"},
                                        Ack{.version = version, .stall_seconds = 0, .seconds = 0},
                                        Released{.slot = {kEpoch, what / 64 % 4}, .lease = what / 256 % 4 * 64},
                                        Poisoned{.why = "nonsense", .final = what % 5 == 0},
                                        Bye{.why = "nonsense"},
                                        Decided{.version = version},
                                        Hello{}};
  const Message& word = words[what % 64 < words.size() ? what % 64 : what % 5];
  trace_ += cat(process.name, " says ", name_of(word), "\n");
  speak(process, word);
}

// It may greet as anything but another worker of this world, whose models would not know of that.
void RandomWorld::say_as_rogue(Message message) {
  Process& rogue = processes_.back();
  auto* const hello = std::get_if<Hello>(&message);
  if (rogue.connection && peers.at(*rogue.connection).closed) lose_connection(rogue);
  if (rogue.connection || hello == nullptr) {
    if (!rogue.connection) connect(rogue, 1);
    trace_ += cat(rogue.name, " says ", name_of(message), "\n");
    return speak(rogue, std::move(message));
  }
  hello->worker = rogue.name;
  hello->instance = rogue.instance;
  if (hello->group == "tp") hello->group = "rogues";
  trace_ += cat(rogue.name, " greets as it likes\n");
  rogue.connection = peers.size() + 1;
  ++events_;
  greet(*std::move(hello));
  look();
}

}  // namespace bascule::test
