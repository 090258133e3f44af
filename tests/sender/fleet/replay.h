// A FleetWorld in which a test sends each event, and reads the messages to each worker.
#pragma once

#include "sender/fleet/world.h"  // first

#include <gmock/gmock.h>

#include <algorithm>

#include "support/status.h"

namespace bascule::test {

class Replay : public testing::Test, public FleetWorld {
 protected:
  explicit Replay(std::string_view options = "", Scheme scheme = {true, false, false, false, 1024})
      : FleetWorld(options, scheme) {}

  // A trainer that has registered its model and opened its slots.
  void open() {
    register_layout();
    open_slots();
  }
  static Hello hello(std::string name, Holder instance) {
    Hello hello;
    hello.worker = std::move(name);
    hello.instance = instance;
    return hello;
  }
  static Hello rank(std::uint32_t rank, std::uint32_t ranks = 2) {
    Hello hello = Replay::hello(cat("tp-", rank), 10 + rank);
    hello.group = "tp";
    hello.rank = rank;
    hello.ranks = ranks;
    return hello;
  }

  // The next message to a worker.
  template <typename T>
  T told(WorkerId id) {
    std::deque<Message>& said = peers.at(id).said;
    if (said.empty() || !std::holds_alternative<T>(said.front())) {
      ADD_FAILURE() << "worker " << id << " was told " << (said.empty() ? "nothing" : name_of(said.front())) << ", not "
                    << name_of(Message(T{}));
      return {};
    }
    T message = std::get<T>(std::move(said.front()));
    said.pop_front();
    return message;
  }
  bool told_nothing(WorkerId id) const { return peers.at(id).said.empty(); }
  std::string why_closed(WorkerId id) const {
    const auto& closed = peers.at(id).closed;
    return closed ? std::string(message_of(closed->why)) : "it is not closed";
  }

  WorkerId join(Hello hello) {
    const WorkerId id = greet(std::move(hello));
    told<Welcome>(id);
    return id;
  }
  // Joins, and takes the published version.
  WorkerId serve(Hello hello) {
    const WorkerId id = join(std::move(hello));
    take(id);
    return id;
  }
  Prepare take(WorkerId id) { return take_all({id}); }
  Prepare take_all(std::vector<WorkerId> ids) {
    Prepare prepare;
    for (const WorkerId id : ids) prepare = told<Prepare>(id);
    for (const WorkerId id : ids) say(id, Ready{.version = prepare.version});
    bool decided = false;  // with the seal
    for (const WorkerId id : ids) decided = told<Sealed>(id).decided.value_or(false);
    for (const WorkerId id : ids) say(id, Prepared{.version = prepare.version});
    for (const WorkerId id : ids)
      if (!decided) told<Decided>(id);
    for (const WorkerId id : ids) say(id, Ack{.version = prepare.version});
    return prepare;
  }
  void release(WorkerId id, const Prepare& served) { say(id, Released{.slot = served.slot, .lease = served.lease}); }

  // begin() starts a send and stops after the version is announced; send() also seals the version.
  Version begin(std::vector<std::string> workers = {}) {
    const std::optional<Grant> grant = ask(std::move(workers));
    if (!grant) ADD_FAILURE() << "there was no slot: " << fleet.slot_allocator().readers();
    return grant ? announce(*grant) : 0;
  }
  Version send(std::vector<std::string> workers = {}) {
    const Version version = begin(std::move(workers));
    seal(version);
    return version;
  }
  // A version that all workers, `ids`, take; they release `served`.
  Prepare send_to(const std::vector<WorkerId>& ids, const std::optional<Prepare>& served) {
    const Version version = send();
    const Prepare now = take_all(ids);
    EXPECT_EQ(now.version, version);
    if (served)
      for (const WorkerId id : ids) release(id, *served);
    return now;
  }

  absl::Status status_of(Version version) const {
    const auto found = settled.find(version);
    return found == settled.end() ? absl::UnknownError("it has not settled") : found->second.status();
  }
  std::vector<WorkerState> states_of(Version version) const {
    std::vector<WorkerState> states;
    if (!status_of(version).ok()) return states;
    for (const WorkerReport& worker : settled.at(version)->workers) states.push_back(worker.state);
    return states;
  }
  bool holds(Holder holder, SlotId slot) const { return fleet.slot_allocator().holds(slot, holder); }
};

}  // namespace bascule::test
