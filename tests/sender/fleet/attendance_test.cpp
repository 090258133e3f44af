// Reports name the workers that are missing: expected ones, and those that left since the last report.
#include "sender/fleet/replay.h"  // first

namespace bascule {
namespace {

using test::Replay;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

auto reads(const std::string& worker, WorkerState state, const std::string& why = "") {
  return AllOf(
      Field(&WorkerReport::worker, worker), Field(&WorkerReport::state, state),
      Field(&WorkerReport::error,
            testing::ResultOf([](const absl::Status& error) { return cat(error.message()); }, HasSubstr(why))));
}

class AttendanceReplay : public Replay {
 protected:
  AttendanceReplay() : Replay("", {}) {}
  // The report of a version that these workers take.
  SendReport send(const std::vector<WorkerId>& takers, const std::vector<std::string>& to = {}) {
    std::optional<Grant> grant = ask(to);
    EXPECT_TRUE(grant.has_value());
    if (!grant) return {};
    const Version version = announce(*grant);
    seal(version);
    if (!takers.empty()) {
      const Prepare now = take_all(takers);
      for (const WorkerId id : takers)
        if (const auto before = std::exchange(held_[id], now)) release(id, *before);
    }
    return *settled.at(version);
  }
  WorkerId join(Hello hello) {
    const WorkerId id = Replay::join(std::move(hello));
    // A catch-up with the newest version, if there is one.
    if (!told_nothing(id)) held_[id] = take(id);
    return id;
  }
  void expect(ExpectedWorkers workers) { tell(event::WorkersExpected{std::move(workers)}); }

 private:
  std::map<WorkerId, std::optional<Prepare>> held_;
};

TEST_F(AttendanceReplay, ANewSenderExpectsOneWorker) {
  open();
  const SendReport report = send({});
  EXPECT_FALSE(report.complete());
  EXPECT_THAT(report.workers, IsEmpty());
  EXPECT_EQ(report.why_incomplete(), "expected at least 1 worker, found 0");
}

TEST_F(AttendanceReplay, NoWorkerIsEnoughIfNoneIsExpected) {
  open();
  expect({.count = 0});
  EXPECT_TRUE(send({}).complete());
}

TEST_F(AttendanceReplay, FewerThanExpectedAreNotComplete) {
  open();
  expect({.count = 2});
  const WorkerId a = join(hello("a", 1));
  const SendReport one = send({a});
  EXPECT_FALSE(one.complete());
  EXPECT_EQ(one.why_incomplete(), "expected at least 2 workers, found 1");
  const WorkerId b = join(hello("b", 2));
  EXPECT_TRUE(send({a, b}).complete());
  expect({.count = 1});
  EXPECT_TRUE(send({a, b}).complete()) << "more than expected";
}

TEST_F(AttendanceReplay, WorkersThatLeftAreNamedOnceInTheNextReport) {
  open();
  const WorkerId a = join(hello("a", 1)), b = join(hello("b", 2)), c = join(hello("c", 3));
  EXPECT_TRUE(send({a, b, c}).complete());
  hang_up(a);
  say(b, Bye{.why = "out of memory"});
  const SendReport report = send({c});
  EXPECT_THAT(report.workers,
              ElementsAre(reads("c", WorkerState::kServing), reads("a", WorkerState::kEvicted, "hung up"),
                          reads("b", WorkerState::kEvicted, "out of memory")));
  EXPECT_FALSE(report.complete());
  EXPECT_THAT(report.why_incomplete(),
              AllOf(HasSubstr("a is evicted: worker a: the peer hung up"), HasSubstr("; b is")));
  EXPECT_TRUE(send({c}).complete()) << "they were named";
  hang_up(c);
  EXPECT_FALSE(send({}).complete());
  EXPECT_FALSE(send({}).complete()) << "for as long as no worker serves";
}

TEST_F(AttendanceReplay, AWorkerThatCameBackIsNotNamedAsLost) {
  open();
  const WorkerId a = join(hello("a", 1));
  EXPECT_TRUE(send({a}).complete());
  hang_up(a);
  const WorkerId again = join(hello("a", 2));
  EXPECT_THAT(send({again}).workers, ElementsAre(reads("a", WorkerState::kServing)));
}

TEST_F(AttendanceReplay, AWorkerThatLeftBeforeTheFirstSendIsNamed) {
  register_layout();
  hang_up(greet(hello("a", 1)));  // wait_for_workers() had counted it
  open_slots();
  EXPECT_THAT(send({}).workers, ElementsAre(reads("a", WorkerState::kEvicted)));
}

TEST_F(AttendanceReplay, AWorkerThatTheRoundLostIsNamedOnce) {
  open();
  const WorkerId a = join(hello("a", 1)), b = join(hello("b", 2));
  const std::optional<Grant> grant = ask();
  const Version version = announce(*grant);
  hang_up(a);
  seal(version);
  take(b);
  EXPECT_THAT(settled.at(version)->workers,
              ElementsAre(reads("a", WorkerState::kEvicted, "hung up"), reads("b", WorkerState::kServing)));
}

TEST_F(AttendanceReplay, AWorkerThatLeftBetweenItsAckAndTheReportIsInTheNextOne) {
  open();
  const WorkerId a = join(hello("a", 1)), b = join(hello("b", 2));
  const std::optional<Grant> grant = ask();
  const Version version = announce(*grant);
  seal(version);
  const Prepare prepare = told<Prepare>(b);
  for (const WorkerId id : {a, b}) say(id, Ready{.version = version});
  for (const WorkerId id : {a, b}) say(id, Prepared{.version = version});
  say(a, Ack{.version = version});
  hang_up(a);
  told<Sealed>(b);
  told<Decided>(b);
  say(b, Ack{.version = version});
  EXPECT_TRUE(settled.at(version)->complete()) << "both served it";
  EXPECT_THAT(send({b}).workers, ElementsAre(reads("b", WorkerState::kServing), reads("a", WorkerState::kEvicted)));
}

TEST_F(AttendanceReplay, AnAbortedVersionKeepsTheNamesForTheNextReport) {
  open();
  const WorkerId a = join(hello("a", 1)), b = join(hello("b", 2));
  const Version dropped = announce(*ask());
  hang_up(a);
  abandon(dropped);
  EXPECT_FALSE(settled.at(dropped).ok());
  const Prepare aborted = told<Prepare>(b);
  told<Abort>(b);
  release(b, aborted);
  EXPECT_THAT(send({b}).workers, ElementsAre(reads("b", WorkerState::kServing), reads("a", WorkerState::kEvicted)));
}

TEST_F(AttendanceReplay, ASendToSomeLeavesTheLostOnesToTheNextSendToAll) {
  open();
  const WorkerId a = join(hello("a", 1)), b = join(hello("b", 2));
  EXPECT_TRUE(send({a, b}).complete());
  expect({.count = 2});
  hang_up(a);
  EXPECT_TRUE(send({b}, {"b"}).complete());
  EXPECT_THAT(send({b}).workers, ElementsAre(reads("b", WorkerState::kServing), reads("a", WorkerState::kEvicted)));
}

TEST_F(AttendanceReplay, AWorkerThatASendNamesAndThatIsGoneIsMissing) {
  open();
  const WorkerId a = join(hello("a", 1));
  const std::optional<Grant> grant = ask({"a"});
  hang_up(a);
  const Version version = announce(*grant);
  seal(version);
  EXPECT_THAT(settled.at(version)->workers, ElementsAre(reads("a", WorkerState::kMissing, "not connected")));
  EXPECT_FALSE(settled.at(version)->complete());
}

TEST_F(AttendanceReplay, ExpectedNamesThatAreNotThereAreMissingInEveryReport) {
  open();
  expect({.count = 0, .names = {"a", "b"}});
  const WorkerId b = join(hello("b", 2));
  for (int i = 0; i < 2; ++i) {
    const SendReport report = send({b});
    EXPECT_THAT(report.workers,
                ElementsAre(reads("b", WorkerState::kServing), reads("a", WorkerState::kMissing, "not connected")));
    EXPECT_FALSE(report.complete());
  }
  const WorkerId a = join(hello("a", 1));
  EXPECT_TRUE(send({b, a}).complete());
}

// In time proportional to their number; and a text for people names only some.
TEST_F(AttendanceReplay, TensOfThousandsOfNamesAreMissing) {
  open();
  ExpectedWorkers many{.count = 0};
  for (int i = 0; i < 50'000; ++i) many.names.push_back(cat("a-rather-long-name-of-an-engine-", i));
  many.names.push_back(many.names.front());
  expect(many);
  const WorkerId a = join(hello("a", 1));
  for (int i = 0; i < 3; ++i) {
    const SendReport report = send({a});
    EXPECT_EQ(report.workers.size(), 50'001U) << "each once";
    EXPECT_THAT(report.why_incomplete(),
                AllOf(HasSubstr("engine-31 is missing"), HasSubstr("; and 49968 more workers")));
  }
  const std::optional<Grant> grant = ask({"a"});
  ASSERT_TRUE(grant.has_value());
}

TEST_F(AttendanceReplay, AnExpectedGroupIsThereOnceAllItsRanksAre) {
  open();
  expect({.count = 0, .names = {"tp"}});
  EXPECT_THAT(send({}).workers, ElementsAre(reads("tp", WorkerState::kMissing, "not connected")));
  const WorkerId first = greet(rank(0));
  EXPECT_THAT(send({}).workers, ElementsAre(reads("tp", WorkerState::kMissing, "1 of its 2 ranks")));
  const WorkerId second = greet(rank(1));
  for (const WorkerId id : {first, second}) told<Welcome>(id);
  take_all({first, second});
  const Version version = announce(*ask());
  seal(version);
  take_all({first, second});
  EXPECT_TRUE(settled.at(version)->complete()) << settled.at(version)->why_incomplete();
}

TEST_F(AttendanceReplay, LinesAboutLossesAreWarnings) {
  open();
  hang_up(join(hello("a", 1)));
  say(join(hello("b", 2)), Bye{.why = ""});  // as intended
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("gave up a")));
  EXPECT_THAT(log, testing::Contains(HasSubstr("worker a joined")));
}

}  // namespace
}  // namespace bascule
