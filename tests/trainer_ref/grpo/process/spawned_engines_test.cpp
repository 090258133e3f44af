// Engines that are shell scripts, which determine their output and their end.
#include <bascule/trainer_ref/grpo/process/spawned_engines.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/trainer_ref/grpo/process/engine_threads.h>
#include <bascule/trainer_ref/grpo/process/line_splitter.h>
#include <bascule/trainer_ref/grpo/process/private_endpoint.h>
#include <bascule/trainer_ref/grpo/process/restart_budget.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using namespace std::chrono_literals;
using bascule::test::IsOk;
using bascule::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

bool is_gone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  return text.empty();  // not even a zombie
}

// Whole lines, as a log gets them.
class Log {
 public:
  void operator()(std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool has(std::string_view line) const {
    for (const std::string& each : lines())
      if (each.find(line) != std::string::npos) return true;
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

class Spawned : public ::testing::Test {
 protected:
  // Each engine has its own file, `$me`.
  std::unique_ptr<SpawnedEngines> start(const std::vector<std::string>& scripts, SpawnOptions options = {}) {
    for (std::size_t i = 0; i < scripts.size(); ++i) {
      const std::string name = cat("engine-", i);
      options.engines.push_back(
          {.name = name, .command = {"sh", "-c", cat("me=", (folder_.path() / name).string(), "; ", scripts[i])}});
    }
    options.log = [this](std::string_view line) { log_(line); };
    return std::make_unique<SpawnedEngines>(std::move(options));
  }
  // What engine `i` wrote into its file.
  std::string file(int i) const {
    std::ifstream stream(folder_.path() / cat("engine-", i));
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const bascule::test::TempFolder folder_;
  Log log_;
};

const auto kGoesOn = [] { return false; };
const std::string kListen = "echo listening on http://127.0.0.1:$$; ";
const std::string kSleep = "sleep 1000 & wait";

TEST_F(Spawned, AreWaitedForAndEndWithTheirOwner) {
  auto engines = start({kListen + "echo $$ > $me; " + kSleep, "sleep 0.2; " + kListen + kSleep});
  const auto urls = engines->wait_until_listening(kGoesOn);
  ASSERT_THAT(urls, IsOk());
  ASSERT_THAT(*urls, SizeIs(2));
  EXPECT_EQ(engines->url(0), urls->front());
  EXPECT_THAT(log_.lines(), ::testing::UnorderedElementsAre("[engine-0] listening on " + engines->url(0),
                                                            "[engine-1] listening on " + engines->url(1)));
  const pid_t pid = std::stoi(engines->url(0).substr(engines->url(0).rfind(':') + 1));
  EXPECT_FALSE(is_gone(pid));
  engines.reset();
  EXPECT_TRUE(is_gone(pid)) << "and is not a zombie";
}

TEST_F(Spawned, AreRestartedWithOtherCommands) {
  auto engines = start({kListen + kSleep, kListen + kSleep}, {.max_restarts = 0});
  ASSERT_THAT(engines->wait_until_listening(kGoesOn), IsOk());
  const pid_t pid = std::stoi(engines->url(0).substr(engines->url(0).rfind(':') + 1));
  engines->restart({{"sh", "-c", "echo listening on http://a; " + kSleep},
                    {"sh", "-c", "sleep 0.2; echo listening on http://b; " + kSleep}});
  EXPECT_TRUE(is_gone(pid));
  const auto urls = engines->wait_until_listening(kGoesOn);
  ASSERT_THAT(urls, IsOk());
  EXPECT_THAT(*urls, ElementsAre("http://a", "http://b"));
  EXPECT_THAT(engines->failure(), IsOk()) << "a restart is no death";
  engines->restart({{"sh", "-c", "echo 'no such weights' >&2; exit 2"}, {"sh", "-c", kListen + kSleep}});
  EXPECT_THAT(engines->wait_until_listening(kGoesOn),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no such weights")));
}

TEST_F(Spawned, HaveASessionOfTheirOwn) {
  auto engines = start({kListen + kSleep});
  ASSERT_THAT(engines->wait_until_listening(kGoesOn), IsOk());
  const pid_t pid = std::stoi(engines->url(0).substr(engines->url(0).rfind(':') + 1));
  EXPECT_EQ(::getsid(pid), pid);
  EXPECT_EQ(::getpgid(pid), pid);
}

// When the owner closes a connection, its peer must see an end of file although engines continue to run.
TEST_F(Spawned, HoldNothingOpenThatTheirOwnerCloses) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);  // as Asio opens sockets: without O_CLOEXEC
  const UniqueFd read(ends[0]);
  UniqueFd write(ends[1]);
  auto engines = start({kListen + kSleep});
  ASSERT_THAT(engines->wait_until_listening(kGoesOn), IsOk());
  write.reset();
  char byte = 0;
  EXPECT_EQ(::read(read.get(), &byte, 1), 0);
}

// Both streams are passed on line by line, including text without a newline and text that comes with the end.
TEST_F(Spawned, PassTheirLinesOnUntilTheLast) {
  auto engines = start({kListen +
                        "trap 'echo bye >&2; printf \"no newline\"; exit 0' TERM; printf 'half '; "
                        "echo error >&2; sleep 0.1; echo whole; echo ready > $me; " +
                        kSleep});
  ASSERT_THAT(engines->wait_until_listening(kGoesOn), IsOk());
  ASSERT_TRUE(eventually([&] { return file(0) == "ready\n"; }));
  engines->end();
  for (const char* line : {"[engine-0] half whole", "[engine-0] error", "[engine-0] bye", "[engine-0] no newline"})
    EXPECT_THAT(log_.lines(), ::testing::Contains(line));
}

TEST_F(Spawned, OneThatRefusesItsFlagsIsToldAtOnceWithItsLastLines) {
  auto engines = start({"echo first >&2; echo 'bascule-engine: --max-batch=0' >&2; exit 2", kListen + kSleep});
  EXPECT_THAT(engines->wait_until_listening(kGoesOn),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("engine-0: it ended with exit status 2 before it listened; its last lines:\n    "
                                 "first\n    bascule-engine: --max-batch=0")));
  EXPECT_FALSE(engines->failure().ok());
}

TEST_F(Spawned, OneThatDiesBeforeItListensIsToldBySignal) {
  auto engines = start({"kill -9 $$"});
  EXPECT_THAT(engines->wait_until_listening(kGoesOn),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("it was ended by signal 9 before it listened")));
}

TEST_F(Spawned, OneThatDoesNotListenIsKilled) {
  auto engines = start({"echo $$ > $me; echo busy; " + kSleep}, {.start_timeout = absl::Milliseconds(500)});
  EXPECT_THAT(engines->wait_until_listening(kGoesOn),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("engine-0: it did not listen within 500ms"), HasSubstr("\n    busy"))));
  EXPECT_TRUE(eventually([&] { return !file(0).empty() && is_gone(std::stoi(file(0))); }));
}

TEST_F(Spawned, AProgramThatIsNotThereIsToldByName) {
  SpawnOptions options{.engines = {{.name = "engine-0", .command = {"/nowhere/bascule-engine"}}}};
  EXPECT_THAT(SpawnedEngines(std::move(options)).wait_until_listening(kGoesOn),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("start /nowhere/bascule-engine: No such file")));
}

TEST_F(Spawned, WaitingEndsWhenItIsToldTo) {
  auto engines = start({kSleep});
  EXPECT_THAT(engines->wait_until_listening([] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
}

TEST_F(Spawned, OneThatDiesIsStartedAgainElsewhere) {
  auto engines = start({kListen + kSleep}, {.max_restarts = 2});
  ASSERT_THAT(engines->wait_until_listening(kGoesOn), IsOk());
  const std::string before = engines->url(0);
  const pid_t pid = std::stoi(before.substr(before.rfind(':') + 1));
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !engines->url(0).empty() && engines->url(0) != before; }));
  EXPECT_THAT(log_.lines(), ::testing::Contains("engine-0: it was ended by signal 9; restart 1 of 2 within an hour"));
  EXPECT_THAT(engines->failure(), IsOk());
  EXPECT_TRUE(is_gone(pid));
}

TEST_F(Spawned, OneThatDiesAgainAndAgainIsGivenUpAndTheOthersRunOn) {
  auto engines = start({kListen + "sleep 0.1; echo bad; exit 3", kListen + kSleep}, {.max_restarts = 1});
  ASSERT_TRUE(eventually([&] { return !engines->failure().ok(); }));
  EXPECT_THAT(engines->failure(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("engine-0: it ended with exit status 3, and it was restarted 1 times"),
                             HasSubstr("--max-engine-restarts"), HasSubstr("\n    bad"))));
  EXPECT_EQ(engines->url(0), "");
  EXPECT_NE(engines->url(1), "");
}

TEST_F(Spawned, OneThatDoesNotEndIsKilled) {
  auto engines =
      start({"trap '' TERM; " + kListen + "while :; do sleep 1; done"}, {.end_timeout = absl::Milliseconds(200)});
  ASSERT_THAT(engines->wait_until_listening(kGoesOn), IsOk());
  const pid_t pid = std::stoi(engines->url(0).substr(engines->url(0).rfind(':') + 1));
  engines->end();
  EXPECT_TRUE(is_gone(pid));
  EXPECT_TRUE(log_.has("engine-0: it did not end within 200ms of SIGTERM, and is killed"));
}

// After SIGKILL, none of the owner's code can run.
TEST_F(Spawned, EndWithAnOwnerThatIsKilled) {
  const pid_t owner = ::fork();
  if (owner == 0) {
    SpawnOptions options{.engines = {{.name = "engine-0",
                                      .command = {"sh", "-c",
                                                  cat("trap '' TERM HUP; echo $$ > ", folder_.path().string(),
                                                      "/engine-0; echo listening on x; while :; do sleep 1; done")}}}};
    const SpawnedEngines engines(std::move(options));
    const auto endpoint = PrivateEndpoint::make();
    if (endpoint.ok()) std::ofstream(folder_.path() / "engine-1") << (*endpoint)->folder().string() << std::endl;
    ::pause();
    ::_exit(0);
  }
  ASSERT_TRUE(eventually([&] { return file(0).ends_with('\n') && file(1).ends_with('\n'); }));
  const pid_t pid = std::stoi(file(0));
  const std::filesystem::path endpoint = file(1).substr(0, file(1).size() - 1);
  EXPECT_FALSE(is_gone(pid));
  EXPECT_TRUE(std::filesystem::exists(endpoint));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return is_gone(pid) || ::getpgid(pid) < 0; }));
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(endpoint); }));
}

TEST(PrivateEndpoint, IsPrivateAndGoneWithItsOwner) {
  auto endpoint = PrivateEndpoint::make();
  ASSERT_THAT(endpoint, IsOk());
  const std::filesystem::path folder = (*endpoint)->folder();
  EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms::owner_all);
  std::ofstream(folder / "sender.lock") << "x";
  endpoint->reset();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(LineSplitter, KeepsWhatIsNoLineYet) {
  LineSplitter lines;
  EXPECT_THAT(lines.add("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(lines.add("o\n\nthree"), ElementsAre("two", ""));
  EXPECT_EQ(lines.finish(), "three");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LineSplitter, ALongLineComesInPiecesOfWhichNoneIsLost) {
  LineSplitter lines;
  const std::string text(3 * LineSplitter::kLongest + 10, 'x');
  std::string all;
  std::size_t pieces = 0;
  for (std::size_t at = 0; at < text.size(); at += 1000)
    for (const std::string& piece : lines.add(std::string_view(text).substr(at, 1000))) {
      EXPECT_EQ(piece.size(), LineSplitter::kLongest);
      all += piece;
      ++pieces;
    }
  EXPECT_EQ(all + lines.finish(), text);
  EXPECT_EQ(pieces, 3);
  EXPECT_THAT(lines.add(std::string(LineSplitter::kLongest, 'y') + "\n"), SizeIs(1))
      << "a line that just fits is not split";
}

TEST(RestartBudget, WaitsLongerEachTimeAndForgetsAfterAnHour) {
  RestartBudget budget(8);
  const Clock::time_point start = Clock::now();
  std::vector<std::chrono::seconds> waits;
  for (int i = 0; i < 8; ++i)
    waits.push_back(std::chrono::duration_cast<std::chrono::seconds>(*budget.restart_after(start) - start));
  EXPECT_THAT(waits, ElementsAre(0s, 1s, 2s, 4s, 8s, 16s, 30s, 30s));
  EXPECT_FALSE(budget.restart_after(start + 59min)) << "the ninth";
  EXPECT_EQ(budget.restart_after(start + 60min), start + 60min) << "the first again";
}

TEST(RestartBudget, OfNoneIsNone) { EXPECT_FALSE(RestartBudget(0).restart_after(Clock::now())); }

TEST(EngineThreads, TrainerAndEnginesShareTheCores) {
  EXPECT_EQ(trainer_threads(0, 2, 2), 1);
  EXPECT_EQ(trainer_threads(0, 64, 3), 16);
  EXPECT_EQ(trainer_threads(5, 64, 3), 5);
  EXPECT_EQ(engine_threads(16, 64, 3), 16);
  EXPECT_EQ(engine_threads(8, 64, 2), 8) << "as many as the trainer has";
  EXPECT_EQ(engine_threads(60, 64, 2), 2) << "only the remaining cores";
  EXPECT_EQ(engine_threads(2, 2, 2), 1);
  EXPECT_EQ(engine_threads(1, 1, 5), 1);
}

}  // namespace
}  // namespace bascule::ref
