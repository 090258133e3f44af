// How ranks meet: their boxes must fit together, and a rank that does not come, or is none, is named.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "absl/time/clock.h"
#include "sender/ranks/two_ranks.h"
#include <bascule/receiver/status_query.h>
#include <bascule/transport/endpoint.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

class TwoRanksMeet : public TwoRanks {};
INSTANTIATE_TEST_SUITE_P(Over, TwoRanksMeet, testing::Values("shm", "memmap", "regions"));

TEST_P(TwoRanksMeet, AHoleIsNamedOnAllRanks) {
  boxes_[1].tensors[0].shards[0].offset[0] = 454;
  EXPECT_THAT(start(), Each(StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("w "), HasSubstr("454")))));
}

TEST_P(TwoRanksMeet, ShardsThatCannotBeSentAreNamedOnAllRanks) {
  for (std::size_t wrong = 0; wrong < 2; ++wrong) {
    const void* const before = std::exchange(boxes_[wrong].tensors[0].shards[0].data, nullptr);
    for (const absl::Status& status : start()) EXPECT_THAT(status.ToString(), HasSubstr("w F32 [900, 70] has no data"));
    boxes_[wrong].tensors[0].shards[0].data = before;
  }
}

TEST_P(TwoRanksMeet, OtherTensorsAreNamedOnAllRanks) {
  boxes_[1].tensors[1].spec.name = "v";
  EXPECT_THAT(start(), Each(StatusIs(StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr("is u F32 [400, 80] on rank 0"), HasSubstr("v F32")))));
}

TEST_P(TwoRanksMeet, WhoIsNotARankIsRefused) {
  EXPECT_THAT(listen(2, 2), StatusIs(StatusCode::kInvalidArgument, HasSubstr("found rank 2 of 2")));
  EXPECT_THAT(listen(0, 2, "?slots=1"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("slots=1")));
  EXPECT_THAT(
      Sender::listen({.endpoint = "nccl://127.0.0.1:29500", .rank = 1, .ranks = 2}),
      StatusIs(StatusCode::kUnimplemented, AnyOf(HasSubstr("memory that workers reach"), HasSubstr("no CUDA"))));
  start_well();
  absl::StatusOr<Sender> twin = listen(1, 2), third = listen(2, 3);
  ASSERT_THAT(twin, IsOk());
  ASSERT_THAT(third, IsOk());
  EXPECT_THAT(twin->register_shards(source(boxes_[1]), "", patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank 1 has joined already, as pid")));
  EXPECT_THAT(third->register_shards(source(boxes_[1]), "", patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("there are 3 ranks, and rank 0 says 2")));
  EXPECT_THAT(senders_[0]->send(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("send({.step = n})")));
  EXPECT_THAT(senders_[0]->loan().status(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("2 ranks")));
  EXPECT_THAT(senders_[1]->loan().status(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank 1")));
}

TEST_P(TwoRanksMeet, ARankOfASenderWithoutRanksIsRefused) {
  absl::StatusOr<Sender> alone = listen(0, 1), other = listen(1, 2);
  ASSERT_THAT(alone, IsOk());
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT(other->register_shards(source(boxes_[1]), "", patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("joins a sender without ranks")));
}

TEST_P(TwoRanksMeet, WhoDoesNotComeIsNamed) {
  absl::StatusOr<Sender> first = listen(0, 2);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(first->register_shards(source(boxes_[0]), "", absl::Milliseconds(50)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("have not joined: 1")));
}

TEST_P(TwoRanksMeet, ARankNamesRank0IfItDoesNotCome) {
  absl::StatusOr<Sender> first = listen(0, 2), second = listen(1, 2);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(second->register_shards(source(boxes_[1]), "", absl::Milliseconds(50)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("of 2 ranks these have not joined: 0;")));
}

class ThreeRanks : public RanksFixture {
 protected:
  void SetUp() override {
    make_ranks(3, {{"w", DType::kF32, {9}}});
    for (std::int64_t rank = 0; rank < 3; ++rank) boxes_[static_cast<std::size_t>(rank)].add(0, {3 * rank}, {3});
    fill(1);
  }
  // Waits until rank 0 says that this rank has joined.
  bool comes(std::size_t rank) const {
    for (const Deadline deadline(patience()); !deadline.passed(); absl::SleepFor(absl::Milliseconds(5))) {
      const absl::StatusOr<Answer> answer = query_status(*Endpoint::parse(endpoint()), std::nullopt);
      if (answer.ok() && answer->status.ranks.at(rank).state == "joined") return true;
    }
    return false;
  }
};

TEST_F(ThreeRanks, WhoDoesNotComeIsNamedOnAllThatCame) {
  absl::StatusOr<Sender> first = listen(0, 3), second = listen(1, 3);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  const auto is_named = StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("of 3 ranks these have not joined: 2;"));
  std::thread other([&] { EXPECT_THAT(second->register_shards(source(boxes_[1]), "", patience()), is_named); });
  EXPECT_TRUE(comes(1));
  EXPECT_THAT(first->register_shards(source(boxes_[0]), "", absl::Milliseconds(50)), is_named);
  other.join();
}

TEST_F(ThreeRanks, ARankThatDiesWhileAnotherIsAwaitedEndsTheMeeting) {
  const pid_t pid = ::fork();  // this process has no threads yet
  if (pid == 0) {
    absl::StatusOr<Sender> second = listen(1, 3);
    if (second.ok()) second->register_shards(source(boxes_[1]), "", patience()).IgnoreError();
    ::_exit(0);
  }
  absl::StatusOr<Sender> first = listen(0, 3);
  ASSERT_THAT(first, IsOk());
  std::thread kills([&] {
    EXPECT_TRUE(comes(1));
    ::kill(pid, SIGKILL);
  });
  EXPECT_THAT(first->register_shards(source(boxes_[0]), "", absl::Hours(1)),
              StatusIs(StatusCode::kUnavailable, HasSubstr(cat("rank 1 (pid ", pid, ") joined, and is gone"))));
  kills.join();
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST_F(ThreeRanks, ARankThatWaitsForLessLongAsksRank0WhoIsMissing) {
  std::atomic<bool> over = false;
  absl::StatusOr<Sender> first =
      Sender::listen({.endpoint = endpoint(), .interrupted = [&over] { return over.load(); }, .rank = 0, .ranks = 3});
  absl::StatusOr<Sender> second = listen(1, 3);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  std::thread waits([&] {
    EXPECT_THAT(first->register_shards(source(boxes_[0]), "", patience()),
                StatusIs(StatusCode::kCancelled, HasSubstr("interrupted")));
  });
  EXPECT_TRUE(comes(0));
  EXPECT_THAT(second->register_shards(source(boxes_[1]), "", absl::Milliseconds(50)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("of 3 ranks these have not joined: 2;")));
  over = true;
  waits.join();
}

}  // namespace
}  // namespace bascule::test
