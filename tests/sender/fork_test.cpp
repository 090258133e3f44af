// A trainer was killed, and a process that it had forked lives on, as a data loader may.
#include "sender/wire_worker.h"  // first: see there

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/environment.h"
#include "support/hung_file.h"
#include "support/port.h"
#include "support/schemes/fake_scheme.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class Forked : public testing::Test {
 protected:
  ~Forked() override {
    if (trainer_ > 0) kill_trainer();
    if (left_ > 0) ::kill(left_, SIGKILL);
  }
  absl::StatusOr<Sender> listen(const std::string& endpoint) const {
    return Sender::listen({.endpoint = endpoint, .threads = 1, .scheme = test::is_fake(endpoint) ? &fake_ : nullptr});
  }
  // Starts a process with a sender, which calls `fork` when told to.
  void start(const std::string& endpoint, const std::function<pid_t()>& fork) {
    ASSERT_EQ(::pipe(to_trainer_.data()), 0);
    ASSERT_EQ(::pipe(from_trainer_.data()), 0);
    trainer_ = ::fork();
    ASSERT_GE(trainer_, 0);
    if (trainer_ > 0) return expect_word();
    test::TestModel model(test::ModelSize::kTiny);
    auto sender = listen(endpoint);
    const bool ready = sender.ok() && sender->register_model(model.source()).ok() && sender->send().ok();
    pid_t word = ready ? 1 : 0;
    if (::write(from_trainer_[1], &word, sizeof(word)) < 0 || ::read(to_trainer_[0], &word, sizeof(word)) < 0)
      ::_exit(1);
    if (fork() == 0) {  // it reports its pid itself, once fork's handlers have run in it
      word = ::getpid();
      if (::write(from_trainer_[1], &word, sizeof(word)) < 0) ::_exit(1);
    }
    while (true) ::pause();
  }
  void fork_and_kill() {
    const pid_t word = 1;
    ASSERT_EQ(::write(to_trainer_[1], &word, sizeof(word)), static_cast<ssize_t>(sizeof(word)));
    ASSERT_EQ(::read(from_trainer_[0], &left_, sizeof(left_)), static_cast<ssize_t>(sizeof(left_)));
    kill_trainer();
    ASSERT_EQ(::kill(left_, 0), 0);
  }

  // What the forked process still has open of this folder.
  std::vector<std::string> files_left_open() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(cat("/proc/", left_, "/fd"))) {
      std::error_code gone;
      const std::filesystem::path file = std::filesystem::read_symlink(entry.path(), gone);
      if (file.string().starts_with(folder_.path().string()) && !std::filesystem::is_directory(file, gone))
        files.push_back(file.filename());
    }
    return files;
  }
  void restart_engines() {
    constexpr int kRestarts = 5;
    struct Engine {
      pid_t pid = 0, helper = 0;
      std::array<int, 2> to{}, from{};

      Engine() = default;
      Engine(const Engine&) = delete;
      Engine& operator=(const Engine&) = delete;
      ~Engine() {
        for (const pid_t process : {pid, helper})
          if (process > 0) ::kill(process, SIGKILL);
        for (const int fd : {to[0], to[1], from[0], from[1]}) ::close(fd);
      }
    };
    std::array<Engine, kRestarts> engines;
    for (std::size_t i = 0; i < engines.size(); ++i) {  // before this process has threads
      Engine& engine = engines[i];
      ASSERT_EQ(::pipe(engine.to.data()), 0);
      ASSERT_EQ(::pipe(engine.from.data()), 0);
      engine.pid = ::fork();
      ASSERT_GE(engine.pid, 0);
      if (engine.pid > 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      char go = 0;
      if (::read(engine.to[0], &go, 1) != 1) ::_exit(1);
      test::WireWorker worker(folder_.path() / "e");
      worker.serve("engine", i + 1);
      const pid_t helper = ::fork();
      if (helper > 0 && ::write(engine.from[1], &helper, sizeof(helper)) < 0) ::_exit(1);
      while (true) ::pause();
    }
    test::TestModel model(test::ModelSize::kTiny);
    auto sender = listen(cat(endpoint_, "&heartbeat=50ms"));
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(model.source()), IsOk());
    ASSERT_THAT(sender->send(), IsOk());
    std::string warnings;
    for (Engine& engine : engines) {
      ASSERT_EQ(::write(engine.to[1], "g", 1), 1);
      ASSERT_EQ(::read(engine.from[0], &engine.helper, sizeof(engine.helper)),
                static_cast<ssize_t>(sizeof(engine.helper)));
      ASSERT_EQ(::kill(engine.pid, SIGKILL), 0);
      ASSERT_GT(::waitpid(std::exchange(engine.pid, 0), nullptr, 0), 0);
      for (int sends = 0; sends < 3; ++sends) {
        const auto sent = sender->send();
        EXPECT_THAT(sent, IsOk());
        if (sent.ok())
          for (const std::string& warning : sent->warnings) warnings += warning + "\n";
      }
    }
    EXPECT_THAT(warnings, HasSubstr(cat("pid ", engines.front().helper, " (test-sender) of the dead worker engine")));
  }

  const test::TempFolder folder_;
  const std::string endpoint_ = cat("shm://", folder_.path().string(), "/e?suspect_after=60s");
  pid_t trainer_ = -1, left_ = -1;

 private:
  void expect_word() {
    pid_t word = 0;
    ASSERT_EQ(::read(from_trainer_[0], &word, sizeof(word)), static_cast<ssize_t>(sizeof(word)));
    ASSERT_EQ(word, 1) << "it does not listen";
  }
  void kill_trainer() {
    ::kill(trainer_, SIGKILL);
    ::waitpid(std::exchange(trainer_, -1), nullptr, 0);
  }

  test::FakeFaults faults_;
  const Scheme fake_ = test::fake_scheme(faults_);
  std::array<int, 2> to_trainer_{}, from_trainer_{};
};

// A slot's file that a forked process kept open would stay locked, and so in the folder, until that process ends.
TEST_F(Forked, HasNoFileOfAKilledSendersSlots) {
  const std::string endpoint = cat("memmap://", folder_.path().string(), "/m?suspect_after=60s");
  start(endpoint, &::fork);
  fork_and_kill();
  for (const std::string& file : files_left_open()) EXPECT_EQ(file.find("slot-"), std::string::npos) << file;
}

TEST_F(Forked, KeepsNeitherLockNorSocketOfASenderThatIsGone) {
  start(endpoint_, ::fork);
  test::WireWorker worker(folder_.path() / "e");
  worker.say(test::WireWorker::hello("w", 1));
  worker.expect<Welcome>();
  fork_and_kill();
  for (Message said = worker.next(); !worker.hung_up() && !std::holds_alternative<Bye>(said);) said = worker.next();
  EXPECT_TRUE(worker.hung_up()) << "it got no hang-up, and would have waited for suspect_after";

  test::TestModel model(test::ModelSize::kTiny);
  auto next = listen(endpoint_);
  ASSERT_THAT(next, IsOk());
  ASSERT_THAT(next->register_model(model.source()), IsOk());
  test::WireWorker back(folder_.path() / "e");
  back.say(test::WireWorker::hello("w", 1));
  EXPECT_THAT(next->wait_for_workers(1, test::patience()), IsOk());
}

TEST_F(Forked, KeepsNoPort) {
  const test::Environment token("BASCULE_TOKEN", "a token of some length");
  const test::ReservedPort port;
  const std::string endpoint = cat("fake://127.0.0.1:", port.number(), "?state=", folder_.path().string());
  start(endpoint, ::fork);
  fork_and_kill();
  EXPECT_THAT(listen(endpoint), IsOk());
}

// It keeps neither the slots' memory nor their descriptors: a killed run leaves no model behind.
TEST_F(Forked, KeepsNoSlots) {
  start(endpoint_, ::fork);
  fork_and_kill();
  for (const char* what : {"maps", "fd"}) {
    const std::string path = cat("/proc/", left_, "/", what);
    std::string seen;
    if (std::string_view(what) == "maps") {
      std::ifstream maps(path);
      seen.assign(std::istreambuf_iterator<char>(maps), {});
    } else {
      for (const auto& entry : std::filesystem::directory_iterator(path))
        seen += std::filesystem::read_symlink(entry.path()).string() + "\n";
    }
    EXPECT_THAT(seen, testing::Not(HasSubstr("memfd:bascule-slot"))) << what;
  }
}

// A child made without fork's handlers keeps all that it shares. The refusal names it, and not only the dead sender.
TEST_F(Forked, WithoutForkItIsNamed) {
  start(endpoint_, [] { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); });
  const pid_t trainer = trainer_;
  fork_and_kill();
  EXPECT_THAT(listen(endpoint_),
              StatusIs(StatusCode::kAlreadyExists,
                       AllOf(HasSubstr(cat("pid ", left_, " (test-sender)")),
                             HasSubstr(cat("the last sender, pid ", trainer, ", left it running")))));
}

// Engines are killed and started again, as by a supervisor. A helper that each had forked lives on, with its lease.
TEST_F(Forked, HelpersOfKilledWorkersFailNoSendAndAreNamed) { restart_engines(); }

// The search for those helpers asks no file: a stat() of one on a server that hangs never returns.
TEST_F(Forked, HelpersOfKilledWorkersAreNamedThoughAFileHangs) {
  test::HungFile hung;
  if (!hung.open()) GTEST_SKIP() << "no right to mount FUSE file systems";
  restart_engines();
}

// posix_spawn() calls none of fork's handlers, and its child has all descriptors until its program starts.
TEST_F(Forked, WithoutForkAChildOfALivingTrainerHoldsNothingUp) {
  const test::Environment token("BASCULE_TOKEN", "a token of some length");
  const test::ReservedPort port;
  for (const std::string& endpoint :
       {endpoint_, cat("fake://127.0.0.1:", port.number(), "?state=", folder_.path().string(), "/tcp")}) {
    auto sender = std::make_optional(listen(endpoint));
    ASSERT_THAT(*sender, IsOk());
    const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    ASSERT_GE(child, 0);
    if (child == 0)
      while (true) ::pause();
    sender.reset();
    EXPECT_THAT(listen(endpoint), IsOk()) << endpoint;
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  }
}

}  // namespace
}  // namespace bascule
