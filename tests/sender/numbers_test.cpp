// The versions that workers claim, and how a sender numbers the next ones. The test is the workers.
#include "sender/wired.h"  // first: see there

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bascule/sender/endpoint_lock.h>
#include <bascule/transport/posix/private_folder.h>

namespace bascule {
namespace {

using test::IsOk;
using testing::HasSubstr;

using Numbers = test::Wired;

// Numbers do not run out because a worker claims many, each a little above the previous one.
TEST_F(Numbers, GoOnHoweverManyVersionsOneGreetingClaims) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  const auto stranger = connect();
  Hello hello = test::WireWorker::hello("stranger", 6);
  for (std::uint32_t i = 1; i < 10'000; ++i)
    hello.held.push_back({.slot = {1, i}, .version = (Version{1} << 40) / 2 * i});
  stranger->say(hello);
  EXPECT_THAT(stranger->expect<Refused>().why, HasSubstr("above the last one, 1;"));
  const absl::StatusOr<SendReport> report = sender_->send();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->version, 2);
}

// Close to the highest number claims are refused, and after it nothing is sent.
TEST(NumbersOfVersions, EndAndAreNotUsedAgain) {
  const test::TempFolder folder;
  const std::string endpoint = cat("shm://", folder.path().string(), "?suspect_after=60s");
  test::TestModel model(test::ModelSize::kTiny);
  const auto continue_behind = [&](Version version) {
    auto lock = EndpointLock::take(open_private_folder(folder.path()).value(), folder.path() / "sender.lock");
    return lock.ok() ? lock->record(version) : lock.status();
  };
  const Version near = kLastVersion - (Version{1} << 40);
  ASSERT_THAT(continue_behind(near), IsOk());
  {
    auto sender = Sender::listen({.endpoint = endpoint});
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(model.source()), IsOk());
    test::WireWorker stranger(folder.path());
    Hello hello = test::WireWorker::hello("stranger", 6);
    hello.serving = near + 1;
    stranger.say(hello);
    EXPECT_THAT(stranger.expect<Refused>().why, HasSubstr("and none near the highest possible number"));
    const auto report = sender->send();
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->version, near + 1);
  }
  ASSERT_THAT(continue_behind(kLastVersion), IsOk());
  auto sender = Sender::listen({.endpoint = endpoint});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(model.source()), IsOk());
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(sender->send(), test::StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("version numbers end at")));
}

// If the number cannot be written down, no worker learns of the version, and the next one gets its slot.
TEST(NumbersOfVersions, ThatCannotBeWrittenDownAreNotUsed) {
  const test::TempFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    test::TestModel model(test::ModelSize::kTiny);
    auto sender = Sender::listen({.endpoint = cat("shm://", folder.path().string()), .threads = 1});
    if (!sender.ok() || !sender->register_model(model.source()).ok() || !sender->send().ok()) ::_exit(1);
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
    for (int i = 0; i < 3; ++i) {  // of two slots
      ::setrlimit(RLIMIT_FSIZE, &none);
      const absl::Status refused = sender->send().status();
      const absl::string_view text = refused.message();
      const std::string written = cat("write ", folder.path().string(), "/sender.lock: ");
      if (text.find(written) == absl::string_view::npos || text.find("(ulimit -f)") == absl::string_view::npos)
        ::_exit(2);
      ::setrlimit(RLIMIT_FSIZE, &limit);
      const auto report = sender->send();
      if (!report.ok() || report->version != 3 + 2 * static_cast<Version>(i)) ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it exited with " << WEXITSTATUS(status);
}

// It serves a higher number than this sender had given, from a run whose sender.lock was lost. The newest version here
// is not newer for it, but the next one is.
TEST_F(Numbers, ThatHasAHigherVersionOfAnotherEpochIsSentTheNext) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  const auto worker = connect();
  Hello hello = test::WireWorker::hello("w", 1);
  hello.epoch = 5;
  hello.serving = 9;
  worker->say(hello);
  worker->expect<Welcome>();
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  model_.step(2);
  ASSERT_THAT(sender_->send_async(), IsOk());
  EXPECT_EQ(worker->take().version, 10u);
  EXPECT_THAT(sender_->wait_async(test::patience()), IsOk());
}

// This sender's versions could not be distinguished from a later run's.
TEST_F(Numbers, ThatServesALaterEpochIsRefused) {
  listen();
  const auto worker = connect();
  Hello hello = test::WireWorker::hello("w", 1);
  hello.epoch = ~Epoch{0};
  hello.serving = 3;
  worker->say(hello);
  EXPECT_THAT(worker->expect<Refused>().why, testing::HasSubstr("is older: sender.lock was lost"));
}

}  // namespace
}  // namespace bascule
