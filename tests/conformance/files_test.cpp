// Schemes whose slots outlive the processes: versions are served with no sender alive, survive a loss of power, and are
// not overwritten while a process that no sender knows reads them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "conformance/suite.h"
#include "support/processes/trainer.h"
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// The kept versions that the scheme itself finds.
class Found {
 public:
  Found(const std::string& endpoint, Version newer_than)
      : reader_(find_scheme(Endpoint::parse(endpoint)->scheme).value()->make_receiver(*Endpoint::parse(endpoint))),
        versions_(reader_->kept_versions()->find_versions(newer_than).value()) {}
  std::size_t count() const { return versions_.size(); }
  Version newest() const { return versions_.empty() ? 0 : versions_.front().publication.version; }

 private:
  std::unique_ptr<ReceiverTransport> reader_;
  std::vector<FoundVersion> versions_;  // leased as long as this lives
};

std::vector<fs::path> slot_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().native().starts_with("slot-")) files.push_back(entry.path());
  std::ranges::sort(files, {}, [](const fs::path& file) { return fs::last_write_time(file); });
  return files;
}

TEST_P(KeptFiles, AReaderServesTheNewestVersionWithNoSenderAlive) {
  listen();
  for (int i = 0; i < 3; ++i) send();
  sender_.reset();
  const auto a = start("a"), b = start("b");
  for (Worker* worker : {a.get(), b.get()}) {
    EXPECT_EQ(worker->wait_ready(), "");
    EXPECT_EQ(worker->report().state, "pending");
    worker->wait_until([](const Observed& now) { return now.pendings == 1; }, "being woken");
    const Observed served = worker->step();
    EXPECT_EQ(served.version, 3u);
    EXPECT_EQ(served.generation, generation_);
    EXPECT_FALSE(served.attached);
  }
}

TEST_P(KeptFiles, AWorkerThatCopiesServesTheNewestVersionWithNoSenderAliveAndTheNextSender) {
  listen();
  for (int i = 0; i < 3; ++i) send();
  sender_.reset();
  const auto commit = join("commit", "", Apply::kCommit), background = join("background", "", Apply::kBackground);
  for (Worker* worker : {commit.get(), background.get()}) {
    const Observed served = worker->wait_for_version(3);
    EXPECT_FALSE(served.attached);
    EXPECT_EQ(worker->wait_until([](const Observed& now) { return now.checks > 3; }, "checks").generation, generation_);
  }
  listen();
  wait_for_workers(2);
  for (int i = 0; i < 3; ++i) send_complete(2);
  expect_newest({commit.get(), background.get()});
}

TEST_P(KeptFiles, ASenderThatComesIsHeardAndTheOldVersionIsReadUntilThen) {
  listen();
  send();
  sender_.reset();
  const auto a = join("a");
  a->wait_for_version(1);
  listen();
  wait_for_workers(1);
  EXPECT_EQ(a->report().version, 1u) << "there is nothing newer yet";
  EXPECT_EQ(send_complete(1).version, 2u) << "above the version that it serves";
  for (int i = 0; i < 3; ++i) send_complete(1);
  expect_newest({a.get()});
}

// The loading trainer has the socket already, but may register its tensors minutes later.
TEST_P(KeptFiles, AReaderServesWhatIsKeptUntilATrainerThatLoadsWelcomesIt) {
  listen();
  for (int i = 0; i < 2; ++i) send();
  sender_.reset();
  absl::StatusOr<Sender> loading = Sender::listen({.endpoint = endpoint()});
  ASSERT_THAT(loading, IsOk());
  const auto a = join("a");
  const Observed served = a->wait_for_version(2);
  EXPECT_FALSE(served.attached);
  EXPECT_EQ(a->wait_until([](const Observed& now) { return now.checks > 3; }, "checks").generation, generation_);
  sender_.emplace(*std::move(loading));
  ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  wait_for_workers(1);
  EXPECT_EQ(send_complete(1).version, 3u);
  for (int i = 0; i < 3; ++i) send_complete(1);
  expect_newest({a.get()});
}

// The connection is made, but the sender stands still and does not answer. The kept version may be its own: when it
// wakes, it finds a worker that already serves its newest version.
TEST_P(KeptFiles, AReaderServesWhatIsKeptWhileATrainerStandsStillAndThenItsVersions) {
  Trainer trainer(endpoint(hasty()), 1, device());
  Sent sent;
  for (int i = 0; i < 3; ++i) sent = trainer.tell("send");
  ASSERT_EQ(sent.error, "");
  trainer.process().signal(SIGSTOP);
  const auto a = join("a", hasty());
  const Observed served = a->wait_for_version(sent.version);
  EXPECT_FALSE(served.attached);
  EXPECT_EQ(served.generation, sent.generation);
  trainer.process().signal(SIGCONT);
  trainer.send_until(1);
  for (int i = 0; i < 3; ++i) {
    sent = trainer.tell("send");
    EXPECT_EQ(sent.error, "");
    EXPECT_EQ(sent.serving, 1);
  }
  const Observed now = a->wait_for_version(sent.version);
  EXPECT_EQ(now.generation, sent.generation);
  EXPECT_EQ(now.wrong, "");
}

// A loss of power may undo the last write to sender.lock, but not the version on the disk.
TEST_P(KeptFiles, SendersContinueAboveWhatTheyFind) {
  listen();
  for (int i = 0; i < 3; ++i) send();
  sender_.reset();
  const fs::path lock = folder_.path() / "endpoint" / "sender.lock";
  std::string text = read_file(lock, 1000).value();
  const std::size_t version = text.find("version ") + 8;
  text.replace(version, 20, 20, '0');
  ASSERT_THAT(replace_file(lock, text), IsOk());
  listen();
  EXPECT_EQ(send().version, 4u);
}

TEST_P(KeptFiles, AVersionThatAppearsWithoutASenderIsTakenUp) {
  const fs::path served = folder_.path() / "endpoint", other = folder_.path() / "other";
  listen();
  send();
  sender_.reset();
  fs::copy(served, other, fs::copy_options::copy_symlinks | fs::copy_options::recursive);
  const auto a = join("a");
  a->wait_for_version(1);
  {
    // The sender continues in a copy of the folder, and the version that it makes there is copied here.
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = cat(GetParam().scheme, "://", other.string())});
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(model_.source()), IsOk());
    model_.step(++generation_);
    ASSERT_THAT(sender->send(), IsOk());
  }
  for (const fs::path& file : slot_files(other)) fs::copy(file, served, fs::copy_options::skip_existing);
  ASSERT_THAT(replace_file(served / "manifest.json", read_file(other / "manifest.json", 10'000).value()), IsOk());
  a->wait_until([this](const Observed& now) { return now.generation == generation_; }, "the newer version");
  EXPECT_EQ(a->report().version, 2u);
  EXPECT_EQ(a->report().wrong, "");
}

TEST_P(KeptFiles, AWrongByteSendsReadersToTheVersionBefore) {
  listen();
  send();
  const std::uint64_t whole = generation_;
  send();
  sender_.reset();
  const fs::path newest = fs::canonical(folder_.path() / "endpoint" / "newest" / "model.safetensors");
  fs::permissions(newest, fs::perms::owner_write, fs::perm_options::add);
  {
    const UniqueFd file(::open(newest.c_str(), O_RDWR | O_CLOEXEC));
    const auto middle = static_cast<off_t>(fs::file_size(newest) / 2);
    std::byte byte{};
    ASSERT_EQ(::pread(file.get(), &byte, 1, middle), 1);
    byte ^= std::byte{1};
    ASSERT_EQ(::pwrite(file.get(), &byte, 1, middle), 1);
  }
  const auto a = start("a");
  EXPECT_EQ(a->wait_ready(), "");
  const Observed served = a->step();
  EXPECT_EQ(served.version, 1u);
  EXPECT_EQ(served.generation, whole);
}

TEST_P(KeptFiles, AReaderOfAnotherModelServesNothingAndSaysWhy) {
  listen();
  send();
  sender_.reset();
  std::vector<TensorSpec> expected = model_.specs();
  expected.push_back({"nowhere", DType::kF32, {2}});
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint(), .worker = "other", .expected = expected});
  ASSERT_THAT(receiver, IsOk());
  absl::Status waited;
  for (const Deadline deadline(patience()); !deadline.passed();) {
    waited = receiver->wait_ready(absl::Milliseconds(5));
    if (waited.message().find("nowhere") != absl::string_view::npos) break;
  }
  EXPECT_THAT(waited, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr("version 1"), HasSubstr("nowhere F32 [2] is expected, but not sent"))));
  EXPECT_FALSE(receiver->commit().changed);
}

TEST_P(KeptFiles, ASingleCopyIsRefused) {
  EXPECT_THAT(try_listen("slots=1"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("use slots=2")));
}

TEST_P(KeptFiles, ADurableSendSaysThatTheDiskHasIt) {
  listen("durable=on");
  const auto a = join("a");
  wait_for_workers(1);
  for (int i = 0; i < 5; ++i) {
    const SendReport report = send_complete(1);
    EXPECT_THAT(report.persisted, IsOk());
    EXPECT_GT(report.seconds.persist, 0);
    EXPECT_THAT(report.memory, HasSubstr("durable by "));
  }
  expect_newest({a.get()});
}

TEST_P(KeptFiles, FreshGivesEachVersionAFileAndKeepsNoMoreThanItNeeds) {
  listen("fresh=on");
  const auto a = join("a");
  wait_for_workers(1);
  std::set<fs::path> seen;
  for (int i = 0; i < 8; ++i) {
    send_complete(1);
    seen.insert(fs::canonical(folder_.path() / "endpoint" / "newest" / "model.safetensors"));
    expect_newest({a.get()});
  }
  EXPECT_EQ(seen.size(), 8u);
  // Files that are no longer needed are removed after the send.
  const auto files = [&] { return slot_files(folder_.path() / "endpoint").size(); };
  for (const Deadline deadline(patience()); files() > 4 && !deadline.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LE(files(), 4u);
}

// A process that is no worker reads the newest version: the version after the next needs a third file.
TEST_P(KeptFiles, AForeignReadersFileIsNotWritten) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  const Found foreign(endpoint(), 0);
  ASSERT_EQ(foreign.newest(), 1u);
  for (int i = 0; i < 4; ++i) send_complete(1);
  expect_newest({a.get()});
  EXPECT_EQ(slot_files(folder_.path() / "endpoint").size(), 3u);
}

TEST_P(KeptFiles, ACheckpointThatAppearsInTheFolderIsLeftAloneAndTheReportSaysSo) {
  listen();
  EXPECT_THAT(send().warnings, testing::IsEmpty());
  const fs::path place = folder_.path() / "endpoint" / "newest" / "model.safetensors";
  ASSERT_THAT(replace_file(place, "somebody's weights"), IsOk());
  EXPECT_THAT(send().warnings, testing::ElementsAre(HasSubstr("model.safetensors is not Bascule's link")));
  EXPECT_THAT(send().warnings, testing::IsEmpty());
  EXPECT_EQ(read_file(place, 100).value_or(""), "somebody's weights");
}

// A checkpoint has a file model.safetensors, which must not lead into a slot that engines read.
TEST_P(KeptFiles, ACheckpointMayBeCopiedOverTheFolderDuringARun) {
  const fs::path checkpoint = folder_.path() / "checkpoint", run = folder_.path() / "endpoint";
  fs::create_directory(checkpoint);
  for (const char* const name : {"model.safetensors", "config.json", "model.safetensors.index.json"})
    ASSERT_THAT(replace_file(checkpoint / name, "somebody's"), IsOk());
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  for (int i = 0; i < 3; ++i) {
    fs::copy(checkpoint, run, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    EXPECT_THAT(send_complete(1).warnings, testing::IsEmpty());
    expect_newest({a.get()});
  }
  EXPECT_EQ(read_file(run / "model.safetensors", 100).value_or(""), "somebody's");
}

TEST_P(KeptFiles, ASendToSomeGoesToThemAloneAlsoInAFileThatTakesTheRightOnesPlace) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  const Found foreign(endpoint(), 0);
  ASSERT_EQ(foreign.newest(), 1u);
  send_complete(2);
  model_.step(++generation_);
  const absl::StatusOr<SendReport> report = sender_->send(nullptr, {"a"});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->workers.size(), 1u);
  EXPECT_EQ(slot_files(folder_.path() / "endpoint").size(), 3u) << "it needs a third file";
  expect_newest({a.get()});
  EXPECT_EQ(b->report().version, 2u);
}

TEST_P(KeptFiles, AWorkerStoppedBesideALiveSenderKeepsItsFile) {
  listen(hasty());
  const auto held = join("held", hasty()), b = join("b", hasty());
  wait_for_workers(2);
  send_complete(2);
  const Observed before = held->report();
  held->tell("hold");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(entry(send(), "b").state, WorkerState::kServing);
  const Observed after =
      held->wait_until([&](const Observed& now) { return now.checks > before.checks + 10; }, "more checks");
  EXPECT_EQ(after.wrong, "");
  EXPECT_EQ(after.generation, before.generation);
  held->tell("run");
  expect_newest({held.get(), b.get()});
}

}  // namespace
}  // namespace bascule::test
