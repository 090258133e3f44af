#include <bascule/sender/lease_pipes.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "support/status.h"

namespace bascule {
namespace {

using test::IsOk;
using testing::ElementsAre;
using testing::IsEmpty;

class LeasePipesTest : public testing::Test {
 protected:
  // The end as a worker has it: a copy, sent to it.
  UniqueFd open(Holder holder) {
    const auto end = pipes_.open(holder);
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

  boost::asio::io_context io_;
  std::vector<Holder> gone_;
  LeasePipes pipes_{io_, [this](Holder holder) { gone_.push_back(holder); }};
};

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
  auto end = pipes_.open(11);
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
