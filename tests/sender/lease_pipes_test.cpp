#include <bascule/sender/lease_pipes.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using testing::ElementsAre;
using testing::IsEmpty;

class LeasePipesTest : public testing::Test {
 protected:
  // The end as a worker has it: a copy, sent to it.
  UniqueFd open(Holder holder, pid_t process = ::getpid()) {
    const auto end = pipes_.open(holder, mark_of(process));
    EXPECT_THAT(end, IsOk());
    return end.ok() ? UniqueFd(::fcntl(end->get(), F_DUPFD_CLOEXEC, 0)) : UniqueFd();
  }
  // Runs everything that is due, then until `count` holders are gone.
  void run_until_gone(std::size_t count) {
    io_.restart();
    io_.poll();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (gone_.size() < count && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
  }

  std::optional<std::string> left_running(Holder holder) {
    std::optional<std::string> who;
    for (const LeasePipes::Found& found : LeasePipes::find(pipes_.searches({holder})))
      if (pipes_.found(found)) who = found.who;
    return who;
  }

  boost::asio::io_context io_;
  std::vector<Holder> gone_;
  std::vector<bool> ended_;  // of each in gone_
  LeasePipes pipes_{io_, [this](Holder holder, bool ended) {
                      gone_.push_back(holder);
                      ended_.push_back(ended);
                    }};
};

TEST_F(LeasePipesTest, SayWhetherTheHolderHasEnded) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  UniqueFd of_ended = open(11, ended), of_living = open(12);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT), 0);
  of_ended.reset();
  run_until_gone(1);
  of_living.reset();
  run_until_gone(2);
  EXPECT_THAT(gone_, ElementsAre(11, 12));
  EXPECT_THAT(ended_, ElementsAre(true, false));
  ::waitpid(ended, nullptr, 0);
}

TEST_F(LeasePipesTest, SayWhoHungUp) {
  UniqueFd first = open(11);
  const UniqueFd second = open(12);
  run_until_gone(0);
  EXPECT_THAT(gone_, IsEmpty());
  first.reset();
  run_until_gone(1);
  EXPECT_THAT(gone_, ElementsAre(11));
}

// A welcome that was lost on its way takes the new end with it.
TEST_F(LeasePipesTest, HoldAsLongAsAnyEndOfTheHolders) {
  UniqueFd first = open(11);
  open(11).reset();
  run_until_gone(0);
  EXPECT_THAT(gone_, IsEmpty());
  UniqueFd third = open(11);
  first.reset();  // as a worker with the new end does
  run_until_gone(0);
  EXPECT_THAT(gone_, IsEmpty());
  third.reset();
  run_until_gone(1);
  EXPECT_THAT(gone_, ElementsAre(11));
}

TEST_F(LeasePipesTest, HoldAsLongAsAnyCopyOfTheEnd) {
  UniqueFd end = open(11);
  UniqueFd copy(::dup(end.get()));
  end.reset();
  run_until_gone(0);
  EXPECT_THAT(gone_, IsEmpty());
  copy.reset();
  run_until_gone(1);
  EXPECT_THAT(gone_, ElementsAre(11));
}

TEST_F(LeasePipesTest, FallWithTheProcessThatHoldsTheEnd) {
  UniqueFd end = open(11);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  end.reset();
  run_until_gone(0);
  EXPECT_THAT(gone_, IsEmpty()) << "the child may still be reading";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  run_until_gone(1);
  EXPECT_THAT(gone_, ElementsAre(11));
}

// A forked child has no copy of an end that is to be handed over.
TEST_F(LeasePipesTest, AreNotHeldByAChildOfTheSender) {
  auto end = pipes_.open(11, mark_of(::getpid()));
  ASSERT_THAT(end, IsOk());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  end->reset();
  run_until_gone(1);
  EXPECT_THAT(gone_, ElementsAre(11));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

// Several reconnections, while helpers that it forked in between keep the earlier ends.
TEST_F(LeasePipesTest, AreNotCollectedWithoutEnd) {
  std::vector<UniqueFd> ends;
  for (std::size_t i = 0; i < LeasePipes::kMostPipes; ++i) ends.push_back(open(11));
  const auto refused = pipes_.open(11, mark_of(::getpid()));
  EXPECT_THAT(refused, test::StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("stop them")));
  EXPECT_THAT(pipes_.open(12, mark_of(::getpid())), IsOk()) << "another worker";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  while (child == 0) ::pause();
  EXPECT_EQ(left_running(11), std::nullopt) << "it lives";
  EXPECT_THAT(pipes_.open(11, mark_of(::getpid())),
              test::StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr(cat("pid ", child, " ("))));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ends.front().reset();
  run_until_gone(0);
  EXPECT_THAT(pipes_.open(11, mark_of(::getpid())), IsOk());
}

TEST_F(LeasePipesTest, AreClosedForAHolderThatNeedsNone) {
  const UniqueFd end = open(11);
  pipes_.close(11);
  run_until_gone(0);
  EXPECT_THAT(gone_, IsEmpty());
  pollfd polled{.fd = end.get(), .events = POLLOUT, .revents = 0};
  ASSERT_EQ(::poll(&polled, 1, 0), 1);
  EXPECT_NE(polled.revents & POLLERR, 0) << "the reading end is still open";
}

// A worker is killed, and a process that it forked lives on.
TEST_F(LeasePipesTest, NameTheProcessThatADeadHolderLeftRunning) {
  std::array<int, 2> told{};
  ASSERT_EQ(::pipe(told.data()), 0);
  UniqueFd end = open(11);
  const pid_t worker = ::fork();
  ASSERT_GE(worker, 0);
  if (worker == 0) {
    const pid_t helper = ::fork();
    if (helper > 0 && ::write(told[1], &helper, sizeof(helper)) < 0) ::_exit(1);
    while (true) ::pause();
  }
  pid_t helper = 0;
  ASSERT_EQ(::read(told[0], &helper, sizeof(helper)), static_cast<ssize_t>(sizeof(helper)));
  ::close(told[0]), ::close(told[1]);
  const auto again = pipes_.open(11, mark_of(worker));
  ASSERT_THAT(again, IsOk());
  end.reset();
  EXPECT_EQ(left_running(11), std::nullopt) << "it lives";
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  ASSERT_EQ(::waitpid(worker, nullptr, 0), worker);
  EXPECT_THAT(left_running(11), testing::Optional(testing::HasSubstr(cat("pid ", helper, " ("))));
  ASSERT_EQ(::kill(helper, SIGKILL), 0);
}

TEST_F(LeasePipesTest, SayNothingOnceTheyAreClosed) {
  UniqueFd end = open(11);
  pipes_.close_all();
  end.reset();
  run_until_gone(0);
  EXPECT_THAT(gone_, IsEmpty());
}

TEST_F(LeasePipesTest, GiveAnEndThatNoOtherProgramInherits) {
  const UniqueFd end = open(11);
  EXPECT_NE(::fcntl(end.get(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace bascule
