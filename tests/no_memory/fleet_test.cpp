// The fleet alone, while memory runs out: at most the worker whose event is handled loses its membership (with its
// group), and every version goes its way.
#include "sender/fleet/random_world.h"  // first: see there
#include "sender/fleet/replay.h"

#include <algorithm>
#include <random>

#include "no_memory/failing_allocator.h"
#include "support/timing.h"

namespace bascule::test {
namespace {

// Which allocation of which event fails.
struct Failure {
  std::size_t event = 0;  // counted from 1; 0: none
  std::size_t n = 0;
  std::size_t events = 0;  // so far
  bool failed = false;
  std::optional<WorkerId> worker{};  // whose event it is
} failure;

std::optional<WorkerId> worker_of(const Event& event) {
  return std::visit(
      [](const auto& each) -> std::optional<WorkerId> {
        if constexpr (requires { each.id; }) return each.id;
        return std::nullopt;
      },
      event);
}

void before_event(const Event& event) {
  if (++failure.events != failure.event) return;
  failure.worker = worker_of(event);
  fail_at(failure.n);
}
void after_event() {
  if (failure.events == failure.event) failure.failed = stop_failing();
}

// Three workers take versions; others come, catch up, fail and leave, so that each kind of event and message occurs.
class Story : public FleetWorld {
 public:
  explicit Story(std::string_view options, Scheme scheme) : FleetWorld(options, scheme) {}

  void run() {
    for (const char* name : {"a", "b", "c"}) workers_.push_back(come(name));
    register_layout();
    open_slots();
    for (int i = 0; i < 3; ++i) send(i);
    tell(event::WorkersExpected{{.count = 1, .names = {"a"}}});
    tell(event::EndpointMissing{"its folder"});
    tell(event::ConnectionRefused{"a stranger"});
    tell(event::TakeWanted{{"a"}});
    tell(event::TakeGivenUp{});
    if (const std::optional<Grant> grant = ask()) {
      tell(event::SlotReplaced{*grant});
      if (std::optional<Grant> other = take_granted()) tell(event::GivenBack{*other});
    }
    send(3);
    leave();
    pass(absl::Minutes(2));
    send(4);
  }

  const std::vector<WorkerId>& workers() const { return workers_; }  // a, b, c

 private:
  WorkerId come(std::string name) {
    Hello hello;
    hello.worker = std::move(name);
    hello.instance = ++instances_;
    return greet(std::move(hello));
  }

  // All who were sent this version answer it.
  void send(int round) {
    const std::optional<Grant> grant = ask();
    if (!grant) return;
    const Version version = announce(*grant);
    answer();
    if (round == 1) late_ = come("late");  // it catches up
    if (round == 2) {
      abandon(version);
    } else {
      seal(version);
    }
    for (int i = 0; i < 8; ++i) {
      answer();
      while (!deliveries.empty()) finish_delivery();
      while (!publishes.empty()) finish_publish();
      while (!persists.empty()) finish_persist();
    }
    if (round == 0) tell(event::Tick{});
  }
  void answer() {
    for (auto& [id, peer] : peers)
      while (!peer.said.empty() && !peer.closed) {
        const Message message = std::move(peer.said.front());
        peer.said.pop_front();
        answer(id, message);
      }
  }
  void answer(WorkerId id, const Message& message) {
    if (const auto* prepare = std::get_if<Prepare>(&message)) {
      leases_[id][prepare->slot] = prepare->lease;
      preparing_[id] = prepare->slot;
      say(id, Ready{.version = prepare->version});
    } else if (const auto* sealed = std::get_if<Sealed>(&message)) {
      if (id == late_ && !std::exchange(failed_, true))
        return say(id, Failed{.version = sealed->version, .why = "a test"});
      say(id, Prepared{.version = sealed->version});
      if (sealed->decided) flip(id, sealed->version);
    } else if (const auto* decided = std::get_if<Decided>(&message)) {
      flip(id, decided->version);
    } else if (std::holds_alternative<Abort>(message) && preparing_[id] != serves_[id]) {
      release(id, *preparing_[id]);
    }
  }
  void flip(WorkerId id, Version version) {
    say(id, Loading{.version = version});
    say(id, Ack{.version = version});
    const std::optional<SlotId> before = std::exchange(serves_[id], preparing_[id]);
    if (before && before != preparing_[id]) release(id, *before);
  }
  void release(WorkerId id, SlotId slot) { say(id, Released{.slot = slot, .lease = leases_[id][slot]}); }

  // In each way; d to i are further workers.
  void leave() {
    const WorkerId d = come("d"), e = come("e"), f = come("f"), g = come("g"), h = come("h"), i = come("i");
    answer();
    answer();
    say(d, Bye{.why = "it has enough"});
    say(e, Poisoned{.why = "a test"});
    hang_up(f);
    tell(event::GivenUp{g, absl::UnavailableError("a test")});
    say(h, Poisoned{.why = "its device", .final = true});
    tell(event::LeftRunning{peers.at(f).hello.instance, "pid 7 (python3)"});
    tell(event::HolderGone{peers.at(f).hello.instance});
    tell(event::HolderGone{peers.at(i).hello.instance});
    come("d");
    come("a");  // the name is taken
  }

  Holder instances_ = 100;
  std::vector<WorkerId> workers_;
  WorkerId late_ = 0;
  bool failed_ = false;
  std::map<WorkerId, std::map<SlotId, LeaseNumber>> leases_;
  std::map<WorkerId, std::optional<SlotId>> preparing_, serves_;
};

class FleetWithoutMemory : public testing::Test {
 protected:
  FleetWithoutMemory() {
    FleetWorld::before_event = before_event;
    FleetWorld::after_event = after_event;
  }
  ~FleetWithoutMemory() override {
    FleetWorld::before_event = nullptr;
    FleetWorld::after_event = nullptr;
  }
};

using Case = std::pair<const char*, FleetWorld::Scheme>;
class EveryEvent : public FleetWithoutMemory, public testing::WithParamInterface<Case> {};

TEST_P(EveryEvent, CostsAtMostOneWorker) {
  failure = {};
  Story whole(GetParam().first, GetParam().second);
  whole.run();
  const std::size_t events = failure.events;
  std::size_t failures = 0;
  for (std::size_t event = 1; event <= events; ++event) {
    for (std::size_t n = 1;; n += kSlowdown) {
      failure = {.event = event, .n = n};
      Story story(GetParam().first, GetParam().second);
      story.run();
      if (!failure.failed) break;
      ++failures;
      SCOPED_TRACE(cat("event ", event, ", allocation ", n));
      for (const WorkerId id : story.workers())
        ASSERT_TRUE(!story.peers.at(id).closed || id == failure.worker) << "worker " << id << " was given up";
      ASSERT_EQ(story.settled.size(), whole.settled.size());
      for (const auto& [version, report] : whole.settled) {
        ASSERT_EQ(story.settled.at(version).ok(), report.ok()) << version << story.settled.at(version).status();
        if (!report.ok()) continue;
        for (const WorkerReport& worker : report->workers) {
          if (worker.worker != "a" && worker.worker != "b" && worker.worker != "c") continue;
          const auto& workers = story.settled.at(version)->workers;
          const auto found = std::ranges::find(workers, worker.worker, &WorkerReport::worker);
          const bool is_same = found != workers.end() && found->state == worker.state;
          const WorkerId id = story.workers().at(static_cast<std::size_t>(worker.worker[0] - 'a'));
          ASSERT_TRUE(is_same || id == failure.worker) << worker.worker << " in the report on version " << version;
        }
      }
      ASSERT_TRUE(story.fleet.versions().tickets().empty());
    }
  }
  EXPECT_GT(failures, 100U);
  RecordProperty("failures", std::to_string(failures));
}
INSTANTIATE_TEST_SUITE_P(Options, EveryEvent,
                         testing::Values(Case{"", {.delivers = true, .publishes = true, .persists = true}},
                                         Case{"commit=each", {.publishes = true}}, Case{"slots=3", {}},
                                         Case{"spares=4", {.delivers = true, .while_written = true}}));

// ---- random worlds: their invariants hold although allocations fail in any event ----

std::mt19937_64 choice;

void before_random_event(const Event&) {
  const std::uint64_t drawn = choice();
  if (drawn % 2 == 0) fail_at(1 + drawn / 2 % 40);
}
void after_random_event() { failure.events += stop_failing() ? 1 : 0; }

TEST(RandomFleetWithoutMemory, KeepsEveryInvariant) {
  constexpr std::uint64_t kRuns = 600 / (kSlowdown * kSlowdown);
  FleetWorld::before_event = before_random_event;
  FleetWorld::after_event = after_random_event;
  failure = {};
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    choice.seed(seed);
    std::mt19937_64 random(seed);
    std::vector<RandomWorld::Step> steps;
    for (int i = 0; i < 250; ++i)
      steps.push_back({static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())});
    RandomWorld world(seed);
    const std::string wrong = world.run(steps);
    if (wrong.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << wrong << "\n" << world.trace();
    break;
  }
  FleetWorld::before_event = nullptr;
  FleetWorld::after_event = nullptr;
  EXPECT_GT(failure.events, kRuns);
  RecordProperty("failures", std::to_string(failure.events));
}

}  // namespace
}  // namespace bascule::test
