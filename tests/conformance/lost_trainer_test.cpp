// Trainers that are lost: the readers continue to serve, and the next trainer continues with the same processes.
#include <csignal>

#include <filesystem>
#include <set>
#include <thread>

#include "conformance/suite.h"
#include "support/processes/trainer.h"
#include <bascule/schemes/registry.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::HasSubstr;

TEST_P(ConformanceProcesses, ReadersOutliveTheirTrainerAndServeTheNext) {
  const auto a = join_process("a"), b = join_process("b");
  Epoch epoch = 0;
  Version version = 0;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    SCOPED_TRACE(round);
    Trainer trainer(endpoint(), 1000 * round, device());
    const Sent sent = trainer.send_until(2);
    EXPECT_GT(sent.version, version) << "above every earlier number";
    EXPECT_EQ(sent.epoch, round == 1 ? sent.epoch : epoch + 1);
    epoch = sent.epoch;
    const Observed served = a->wait_for_version(sent.version);
    EXPECT_EQ(served.epoch, epoch);
    EXPECT_EQ(served.generation, sent.generation);

    trainer.tell("run");
    version = b->wait_for_version(sent.version + 3).version;
    trainer.process().signal(SIGKILL);  // in the middle of some send
    for (Worker* worker : {static_cast<Worker*>(a.get()), static_cast<Worker*>(b.get())}) {
      const Observed alone = worker->wait_until([](const Observed& now) { return !now.attached; }, "being alone");
      EXPECT_EQ(alone.state, "serving");
      const Observed later = worker->wait_until([&](const Observed& now) { return now.checks > alone.checks + 10; },
                                                "checks without a trainer");
      EXPECT_EQ(later.wrong, "");
      version = std::max(version, later.version);
    }
  }
}

// The trainer stands still in the middle of a send: when it wakes, all deadlines of that send have passed.
TEST_P(ConformanceProcesses, ATrainerThatStoodStillInASendSendsOn) {
  if (GetParam().scheme == "nccl") GTEST_SKIP() << "a communicator takes longer to make than this send may take";
  const auto limit = absl::ToInt64Milliseconds(silence()) / 10;
  const std::string options = cat("suspect_after=", 2 * limit, "ms&flip_timeout=", limit, "ms&timeout=", limit, "ms");
  const auto a = join_process("a", options);
  Trainer trainer(endpoint(options), 1, device());
  const auto send_until_served = [&] { EXPECT_EQ(a->wait_for_version(trainer.send_until(1).version).wrong, ""); };
  for (int round = 0; round < 3; ++round) {
    send_until_served();
    trainer.tell("run");
    a->process().signal(SIGSTOP);  // a send waits for it
    trainer.process().signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(6 * limit));
    trainer.process().signal(SIGCONT);
    a->process().signal(SIGCONT);
    send_until_served();
  }
}

TEST_P(ConformanceProcesses, ATrainerKilledWithASlotOnLoanLeavesTheOldVersion) {
  const auto a = join_process("a");
  Trainer trainer(endpoint(), 1, device());
  const Sent sent = trainer.send_until(1);
  const Observed before = a->wait_for_version(sent.version);
  EXPECT_EQ(trainer.tell("loan").error, "");
  trainer.process().signal(SIGKILL);
  const Observed alone = a->wait_until([](const Observed& now) { return !now.attached; }, "being alone");
  EXPECT_EQ(alone.version, before.version);
  EXPECT_EQ(alone.generation, before.generation);

  generation_ = 100;
  listen();
  wait_for_workers(1);
  EXPECT_GT(send_complete(1).version, sent.version + 1) << "the number of the loan is not used again";
  expect_newest({a.get()});
}

TEST_P(ConformanceProcesses, ASecondSenderIsRefusedWithThePidOfTheFirst) {
  Trainer trainer(endpoint(), 1, device());
  EXPECT_THAT(try_listen(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("pid " + std::to_string(trainer.process().pid()))));
  const auto a = join_process("a");
  EXPECT_EQ(a->wait_ready(absl::ZeroDuration()).empty(), false);
  trainer.send_until(1);  // the first is not disturbed
}

TEST_P(ConformanceProcesses, NothingIsLeftWhenEverybodyIsKilled) {
  {
    const auto a = join_process("a"), b = join_process("b");
    Trainer trainer(endpoint(), 1, device());
    const Sent sent = trainer.send_until(2);
    trainer.tell("run");
    a->wait_for_version(sent.version + 2);
    for (ChildProcess* process : {&a->process(), &trainer.process(), &b->process()}) process->signal(SIGKILL);
  }
  std::set<std::string> left;
  for (const auto& file : std::filesystem::directory_iterator(folder_.path() / "endpoint"))
    left.insert(file.path().filename());
  if (given_scheme() == nullptr && find_scheme(GetParam().scheme).value()->keeps_files)
    std::erase_if(left, [](const std::string& name) {
      // Also files that were about to replace these when the trainer was killed: the next one overwrites them.
      return name.starts_with("slot-") || name.starts_with("manifest.json") || name == "newest";
    });
  const std::set<std::string> expected = GetParam().place == Place::kHost
                                             ? std::set<std::string>{"sender.lock"}
                                             : std::set<std::string>{"control.sock", "sender.lock"};
  EXPECT_EQ(left, expected);
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  EXPECT_GT(send_complete(1).version, 2u);
  expect_newest({a.get()});
}

}  // namespace
}  // namespace bascule::test
