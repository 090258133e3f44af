// Workers and communicators that die, hang and fail, with a real sender and real receivers over the fake of NCCL: the
// others are served, and nothing leaks.
#include <gmock/gmock.h>

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "support/nccl/fake_nccl.h"
#include "support/processes/worker.h"
#include "support/schemes/host_place.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/schemes/nccl/communicator.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using nccl::CommGroupLimits;
using nccl::Communicator;
using testing::_;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

struct Engine {
  std::shared_ptr<HostPlace> place = std::make_shared<HostPlace>();
  Scheme scheme;
  std::unique_ptr<Worker> worker;
};

// The place of a worker whose GPU has no room for a stream, or whose broadcasts all fail.
class BadPlace final : public nccl::Place {
 public:
  explicit BadPlace(bool opens) : opens_(opens) {}
  int device() const override { return host_.device(); }
  absl::StatusOr<SlotMemory> make_slot(std::uint64_t bytes) override { return host_.make_slot(bytes); }
  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) override {
    return host_.allocate(bytes, what);
  }
  absl::StatusOr<std::unique_ptr<nccl::Digester>> open_digester() override { return host_.open_digester(); }
  absl::StatusOr<std::unique_ptr<nccl::Lane>> open_lane(bool sends) override {
    if (!opens_) return absl::ResourceExhaustedError("no room for a stream");
    BASCULE_ASSIGN(std::unique_ptr<nccl::Lane> lane, host_.open_lane(sends));
    return std::make_unique<BadLane>(std::move(lane));
  }

 private:
  class BadLane final : public nccl::Lane {
   public:
    explicit BadLane(std::unique_ptr<nccl::Lane> lane) : lane_(std::move(lane)) {}
    Stream stream() const override { return lane_->stream(); }
    absl::StatusOr<std::unique_ptr<DeviceMark>> mark() override { return absl::UnavailableError("its adapter fails"); }

   private:
    const std::unique_ptr<nccl::Lane> lane_;
  };

  HostPlace host_;
  const bool opens_;
};

class NcclDeaths : public testing::Test {
 protected:
  NcclDeaths() { fake.renew(); }
  ~NcclDeaths() override {
    fake.free_aborts();
    sender.reset();
    engines.clear();
    const Deadline deadline(patience());
    while (Communicator::alive() > 0 && !deadline.passed()) rest(1);
    EXPECT_EQ(Communicator::alive(), 0);
    EXPECT_EQ(fake.live_comms(), 0);
    EXPECT_LE(fake.live_threads(), unfinished_inits);
    EXPECT_THAT(fake.misuse_texts(), IsEmpty());
    if (HasFailure()) std::fputs(log_.c_str(), stderr);
    fake.renew();
  }

  std::string endpoint() const {
    const auto limit = absl::ToInt64Milliseconds(patience());
    return cat("host-nccl://", (folder_.path() / "endpoint").string(), "?heartbeat=50ms&suspect_after=", limit,
               "ms&flip_timeout=", limit, "ms&timeout=", limit, "ms");
  }
  void listen(const CommGroupLimits& limits = {}) {
    scheme_ = host_nccl_scheme(place, limits);
    SenderOptions options{.endpoint = endpoint(), .threads = 2};
    options.scheme = &scheme_;
    options.log = [this, start = Clock::now()](std::string_view line) {
      const std::lock_guard lock(log_mutex_);
      log_ += cat(seconds_between(start, Clock::now()), "  ", line, "\n");
    };
    absl::StatusOr<Sender> listening = Sender::listen(std::move(options));
    ASSERT_THAT(listening, IsOk());
    sender.emplace(*std::move(listening));
    ASSERT_THAT(sender->register_model(model.source()), IsOk());
  }
  Engine& join(std::string name, std::shared_ptr<nccl::Place> elsewhere = nullptr) {
    Engine& engine = engines.emplace_back();
    engine.scheme = host_nccl_scheme(elsewhere ? std::move(elsewhere) : engine.place);
    WorkerArguments arguments{.endpoint = endpoint(), .name = std::move(name)};
    arguments.scheme = &engine.scheme;
    engine.worker = std::make_unique<WorkerThread>(std::move(arguments));
    engine.worker->tell("run");
    return engine;
  }
  void wait_for_workers(int count) { EXPECT_THAT(sender->wait_for_workers(count, patience()), IsOk()); }
  absl::StatusOr<SendReport> try_send() {
    model.step(++generation);
    return sender->send();
  }
  void begin() {
    model.step(++generation);
    ASSERT_THAT(sender->send_async(), IsOk());
  }
  // The version that all `count` workers must serve.
  void send(std::size_t count) { expect_served(try_send(), count); }
  void expect_served(const absl::StatusOr<SendReport>& report, std::size_t count) {
    ASSERT_THAT(report, IsOk());
    std::size_t serving = 0;
    for (const WorkerReport& worker : report->workers) serving += worker.state == WorkerState::kServing ? 1 : 0;
    EXPECT_EQ(serving, count);
    for (Engine& engine : engines) {
      if (!engine.worker || count < engines.size()) continue;
      const Observed seen = engine.worker->wait_until(
          [&](const Observed& now) { return now.generation == generation || !now.wrong.empty(); }, "the newest");
      EXPECT_EQ(seen.wrong, "");
    }
  }
  void finish(std::size_t count) { expect_served(sender->wait_async(patience()), count); }
  // Waits until the group of all workers runs, and other groups are gone.
  void wait_for_comms(int count) {
    const Deadline deadline(patience());
    while (fake.live_comms() != count && !deadline.passed()) rest(1);
    EXPECT_EQ(fake.live_comms(), count);
  }
  void stall(const Engine& engine) {
    for (const Stream stream : engine.place->streams()) fake.stall(stream);
  }
  static void rest(int milliseconds = 30) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }
  void wait_for(const std::function<bool()>& is) {
    for (const Deadline deadline(patience()); !deadline.passed(); rest(1))
      if (is()) return;
    ADD_FAILURE() << "it never came";
  }

  FakeNccl& fake = FakeNccl::instance();
  TestModel model;
  std::uint64_t generation = 0;
  int unfinished_inits = 1;  // at most, of the group made at the end: NCCL keeps a thread for each
  const std::shared_ptr<HostPlace> place = std::make_shared<HostPlace>();
  std::list<Engine> engines;
  std::optional<Sender> sender;

 private:
  TempFolder folder_;
  Scheme scheme_;
  std::mutex log_mutex_;
  std::string log_;
};

TEST_F(NcclDeaths, ARankThatStallsInABroadcastAndDiesIsNamedAndTheOthersAreServed) {
  listen();
  Engine &a = join("a"), &b = join("b"), &c = join("c");
  wait_for_workers(3);
  send(3);
  wait_for_comms(4);
  stall(b);
  begin();
  EXPECT_THAT(sender->wait_async(absl::Milliseconds(50)), StatusIs(StatusCode::kDeadlineExceeded, _));
  b.worker.reset();
  finish(2);
  send(2);
  for (Engine* engine : {&a, &c}) EXPECT_EQ(engine->worker->report().wrong, "");
}

TEST_F(NcclDeaths, TwoAtOnce) {
  listen();
  Engine& a = join("a");
  join("b"), join("c"), join("d");
  wait_for_workers(4);
  send(4);
  wait_for_comms(5);
  unfinished_inits = 2;  // also of groups that the second worker did not join
  for (Engine& engine : engines)
    if (&engine != &a) stall(engine);
  begin();
  rest();
  std::next(engines.begin(), 1)->worker.reset();
  std::next(engines.begin(), 2)->worker.reset();
  for (const Stream stream : engines.back().place->streams()) fake.go_on(stream);
  const absl::StatusOr<SendReport> report = sender->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  for (const WorkerReport& worker : report->workers)  // the second worker may be served before it leaves
    EXPECT_TRUE(worker.worker == "c" || (worker.state == WorkerState::kServing) == (worker.worker != "b"))
        << worker.worker;
  send(2);
}

TEST_F(NcclDeaths, OneThatDiesWhileACommunicatorIsMade) {
  fake.slow_init(std::chrono::milliseconds(200));
  listen();
  Engine &a = join("a"), &b = join("b");
  wait_for_workers(2);
  begin();
  wait_for([&] { return fake.live_comms() == 3; });
  b.worker.reset();
  finish(1);
  send(1);
  EXPECT_EQ(a.worker->report().wrong, "");
}

TEST_F(NcclDeaths, AJoinerIsServedAtOnceAndThenByOneGroupOfAll) {
  listen({.gather = absl::Milliseconds(300)});
  join("a"), join("b");
  wait_for_workers(2);
  send(2);
  wait_for_comms(3);
  join("c");
  wait_for_workers(3);
  send(3);
  wait_for([&] { return fake.ids() >= 2; });
  // The group of all workers, and the last used one.
  wait_for([&] { return fake.live_comms() == 4 + 3 || fake.live_comms() == 4 + 2; });
  const int ids = fake.ids();
  for (int i = 0; i < 3; ++i) send(3);
  EXPECT_EQ(fake.ids(), ids);
}

TEST_F(NcclDeaths, AJoinerWhileOthersAreSentToIsServedBesideThem) {
  listen();
  Engine &a = join("a"), &b = join("b");
  wait_for_workers(2);
  send(2);
  wait_for_comms(3);
  stall(a);
  begin();
  Engine& c = join("c");
  c.worker->wait_for_version(1);  // the one before
  for (const Stream stream : a.place->streams()) fake.go_on(stream);
  EXPECT_THAT(sender->wait_async(patience()), IsOk());
  wait_for_workers(3);
  send(3);
  EXPECT_EQ(b.worker->report().wrong, "");
}

TEST_F(NcclDeaths, ABroadcastThatFailsNowOrLaterIsMadeGoodInAnotherGroup) {
  listen();
  join("a"), join("b");
  wait_for_workers(2);
  send(2);
  fake.fail_broadcast_late(1);
  send(2);
  fake.fail_broadcast(1);
  send(2);
  send(2);
}

TEST_F(NcclDeaths, AnInitThatFailsIsTriedAgain) {
  listen();
  unfinished_inits = 3;
  fake.fail_init(2);
  join("a"), join("b");
  wait_for_workers(2);
  send(2);
}

TEST_F(NcclDeaths, IdsThatCannotBeDrawnAbortTheVersion) {
  listen();
  join("a");
  wait_for_workers(1);
  fake.fail_unique_id(1000);
  EXPECT_THAT(try_send(), StatusIs(StatusCode::kUnavailable,
                                   AllOf(HasSubstr("given up after 3 communicators"), HasSubstr("create an id"))));
  fake.fail_unique_id(0);
  send(1);
}

TEST_F(NcclDeaths, AnAbortThatHangsAtTheSenderPoisonsIt) {
  listen({.leave = absl::Milliseconds(300)});
  Engine &a = join("a"), &b = join("b");
  wait_for_workers(2);
  send(2);
  wait_for_comms(3);
  fake.hang_abort(1, 0);
  stall(b);
  begin();
  rest();
  b.worker.reset();
  EXPECT_THAT(sender->wait_async(patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("restart this process")));
  const int ids = fake.ids();
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(try_send(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("restart this process")));
  EXPECT_EQ(fake.ids(), ids);
  const Observed seen = a.worker->report();
  EXPECT_EQ(seen.wrong, "");
  EXPECT_EQ(seen.version, 1u) << "it serves what it has";
}

TEST_F(NcclDeaths, AnAbortThatHangsAtAWorkerEvictsThatWorker) {
  listen({.leave = absl::Milliseconds(300)});
  join("a"), join("b"), join("c");
  wait_for_workers(3);
  send(3);
  wait_for_comms(4);
  fake.hang_abort(1, 2);  // of a worker
  fake.fail_broadcast_late(1);
  const absl::StatusOr<SendReport> report = try_send();
  ASSERT_THAT(report, IsOk());
  int serving = 0, evicted = 0;
  for (const WorkerReport& worker : report->workers) {
    serving += worker.state == WorkerState::kServing ? 1 : 0;
    if (worker.state != WorkerState::kEvicted) continue;
    ++evicted;
    EXPECT_THAT(worker.error, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("did not leave a communicator")));
  }
  EXPECT_EQ(serving, 2);
  EXPECT_EQ(evicted, 1);
}

TEST_F(NcclDeaths, OneThatBreaksEvenAGroupOfItsOwnIsEvictedAndTheOthersAreServed) {
  listen();
  Engine& a = join("a");
  join("b", std::make_shared<BadPlace>(/*opens=*/true));
  wait_for_workers(2);
  const absl::StatusOr<SendReport> report = try_send();
  ASSERT_THAT(report, IsOk());
  for (const WorkerReport& worker : report->workers) {
    EXPECT_EQ(worker.state, worker.worker == "a" ? WorkerState::kServing : WorkerState::kEvicted);
    if (worker.worker == "a") continue;
    EXPECT_THAT(worker.error, StatusIs(StatusCode::kUnavailable, HasSubstr("its adapter fails")));
  }
  for (int i = 0; i < 3; ++i) EXPECT_THAT(try_send(), IsOk());
  EXPECT_EQ(a.worker->report().wrong, "");
}

TEST_F(NcclDeaths, OneThatCannotJoinEndsNothingForTheOthers) {
  unfinished_inits = 100;  // the sender's, in groups that it never joined
  listen();
  Engine& a = join("a");
  wait_for_workers(1);
  send(1);
  const int before = Communicator::abandoned();
  join("b", std::make_shared<BadPlace>(/*opens=*/false));
  for (const Deadline deadline(absl::Seconds(2)); !deadline.passed(); rest()) ASSERT_THAT(try_send(), IsOk());
  EXPECT_LE(Communicator::abandoned() - before, 8) << "it stays away for a second, then for two";
  EXPECT_EQ(a.worker->report().wrong, "");
}

TEST_F(NcclDeaths, ASenderThatEndsInTheMiddleLeavesNothing) {
  listen();
  Engine& a = join("a");
  join("b");
  wait_for_workers(2);
  send(2);
  stall(a);
  begin();
  rest();
  sender.reset();
}

}  // namespace
}  // namespace bascule::test
