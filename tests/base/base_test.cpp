// Processes that share a base, join it, and die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <list>

#include "base/user.h"
#include "support/devices/device_bytes.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>

namespace bascule {
namespace {

using test::BaseUser;
using test::IsOk;
using testing::HasSubstr;

class SharedBase : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda-ipc" && !std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "needs a GPU";
  }
  std::string endpoint() const { return GetParam() + "://" + folder_.path().string() + "/base?heartbeat=50ms"; }
  // A process that has the base of this generation open, as the test has checked.
  BaseUser& open(const std::string& name, std::uint64_t generation, std::uint64_t expected) {
    BaseUser& user = users_.emplace_back(endpoint(), name, generation);
    check(user.answer(), expected);
    return user;
  }
  static void check(const nlohmann::json& answer, std::uint64_t expected) {
    ASSERT_EQ(answer["error"], "");
    EXPECT_EQ(answer["generation"], expected);
  }

  test::TempFolder folder_;
  std::list<BaseUser> users_;
};

TEST_P(SharedBase, IsMadeByOneAndJoinedByOthers) {
  BaseUser& first = open("first", 5, 5);
  BaseUser& second = open("second", 9, 5);  // it would make another one, and must not
  BaseUser& third = open("third", 0, 5);
  const nlohmann::json made = first.ask("look");
  EXPECT_TRUE(made["made"]);
  EXPECT_TRUE(made["answers"]);
  for (BaseUser* joined : {&second, &third}) {
    const nlohmann::json found = joined->ask("look");
    EXPECT_FALSE(found["made"]);
    EXPECT_FALSE(found["answers"]);
    EXPECT_EQ(found["digest"], made["digest"]);
  }
}

TEST_P(SharedBase, IsMadeOnceIfManyOpenItAtTheSameTime) {
  constexpr int kUsers = 5;
  for (int i = 0; i < kUsers; ++i)
    users_.emplace_back(endpoint(), "user-" + std::to_string(i), static_cast<std::uint64_t>(i == 0 ? 0 : 10 + i));
  std::vector<std::uint64_t> generations;
  int makers = 0;
  for (BaseUser& user : users_) {
    const nlohmann::json found = user.answer();
    ASSERT_EQ(found["error"], "");
    generations.push_back(found["generation"]);
    makers += found["made"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(makers, 1);
  EXPECT_THAT(generations, testing::Each(generations.front()));
}

// The one that answers is killed again and again. The others go on reading the same memory, one of them takes over, and
// a newcomer joins, until none is left that ever met the first.
TEST_P(SharedBase, OutlivesWhoeverAnswers) {
  open("made", 5, 5);
  open("0", 0, 5);
  open("1", 0, 5);
  for (int i = 0; i < 4; ++i) {
    const auto answers = [](BaseUser& user) { return user.ask("look")["answers"].get<bool>(); };
    const auto doomed = std::ranges::find_if(users_, answers);
    ASSERT_NE(doomed, users_.end());
    doomed->process().signal(SIGKILL);
    users_.erase(doomed);
    for (BaseUser& user : users_) check(user.ask("look"), 5);
    open(std::to_string(2 + i), 7, 5);  // it joins, although it could make another one
    const Deadline deadline(test::patience());
    while (std::ranges::count_if(users_, answers) != 1) ASSERT_FALSE(deadline.passed()) << "none took over";
    for (BaseUser& user : users_) check(user.ask("look"), 5);
  }
}

TEST_P(SharedBase, IsHandedOnIfTheOneThatAnswersQuits) {
  BaseUser& first = open("first", 5, 5);
  BaseUser& second = open("second", 0, 5);
  first.process().lines().write("quit");
  EXPECT_EQ(first.process().wait(), 0);
  second.wait_until_it_answers();
  check(open("third", 6, 5).ask("look"), 5);
}

TEST_P(SharedBase, EndsWithTheLastProcess) {
  open("first", 5, 5).process().signal(SIGKILL);
  EXPECT_TRUE(open("second", 6, 6).ask("look")["made"]);
}

// A process that stands still keeps the base: a newcomer must not make another one. It waits, and joins.
TEST_P(SharedBase, IsKeptByAProcessThatStandsStill) {
  BaseUser& first = open("first", 5, 5);
  BaseUser& second = open("second", 0, 5);
  second.process().signal(SIGSTOP);
  first.process().signal(SIGKILL);
  BaseUser third(endpoint(), "third", 6);
  const absl::StatusOr<std::string> early = third.process().lines().read(Deadline(test::silence()));
  EXPECT_THAT(early, test::StatusIs(absl::StatusCode::kDeadlineExceeded, testing::_)) << "it made another base";
  second.process().signal(SIGCONT);
  check(third.answer(), 5);
}

TEST_P(SharedBase, IsMadeAnewIfTheLastProcessEndsWhileAnotherWaits) {
  BaseUser& first = open("first", 5, 5);
  first.process().signal(SIGSTOP);
  BaseUser second(endpoint(), "second", 6);
  const absl::StatusOr<std::string> early = second.process().lines().read(Deadline(test::silence()));
  EXPECT_THAT(early, test::StatusIs(absl::StatusCode::kDeadlineExceeded, testing::_));
  first.process().signal(SIGKILL);
  check(second.answer(), 6);
}

// A process that dies while it makes the base leaves nothing behind.
TEST_P(SharedBase, IsMadeByAnotherIfTheFirstIsKilled) {
  BaseUser killed(endpoint(), "killed", 5);
  killed.process().signal(SIGKILL);  // at any point
  check(open("next", 6, 6).ask("look"), 6);
}

TEST_P(SharedBase, RefusesAnotherKey) {
  open("first", 5, 5);
  BaseUser other(endpoint(), "other", 5, "another key");
  const std::string error = other.answer()["error"];
  EXPECT_THAT(error, HasSubstr("another key"));
  EXPECT_EQ(other.process().wait(), 1);
}

TEST_P(SharedBase, CannotBeWritten) {
  if (test::device_for(GetParam()) != kHost) GTEST_SKIP() << "the host cannot reach the memory of a GPU at all";
  BaseUser& first = open("first", 5, 5);
  BaseUser& second = open("second", 0, 5);
  EXPECT_EQ(first.ask("map")["error"], "");
  EXPECT_EQ(second.ask("map")["error"], "");
  for (BaseUser* user : {&second, &first}) {  // also the one that made it
    user->process().lines().write("write");
    EXPECT_THAT(user->process().wait(), testing::AnyOf(-SIGSEGV, 1, 66))
        << "it wrote the base";  // 1, 66: of sanitizers
  }
}

// To others, it is an endpoint like any other.
TEST_P(SharedBase, IsReadByAReceiver) {
  open("first", 5, 5);
  absl::StatusOr<Receiver> reader = Receiver::connect({.endpoint = endpoint(), .worker = "reader"});
  ASSERT_THAT(reader, IsOk());
  ASSERT_THAT(reader->wait_ready(test::patience()), IsOk());
  const Flip flip = reader->commit();
  const auto found = test::generation_of(reader->weights(flip.slot).tensors(), test::ModelSize::kSmall);
  EXPECT_THAT(found, IsOk());
  EXPECT_EQ(found.value_or(0), 5);
}

INSTANTIATE_TEST_SUITE_P(Shm, SharedBase, testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Cuda, SharedBase, testing::Values("cuda-ipc"));

}  // namespace
}  // namespace bascule
