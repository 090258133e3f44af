// Ranks as processes, which are killed or stopped. Whatever happens, engines have whole versions, and every call ends.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "sender/ranks/ranks_fixture.h"
#include <bascule/receiver/status_query.h>
#include <bascule/transport/endpoint.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

enum class Moment { kBeforeTheSend, kInTheWrite };

// Sends a signal to its own process at a given call.
class SignalledShards final : public ShardSource {
 public:
  SignalledShards(std::vector<ShardedTensor> tensors, int at, int number)
      : tensors_(std::move(tensors)), at_(at), number_(number) {}
  absl::StatusOr<std::span<const ShardedTensor>> tensors() override {
    if (++calls_ == at_) ::raise(number_);
    return tensors_;
  }

 private:
  std::vector<ShardedTensor> tensors_;
  int calls_ = 0;
  const int at_, number_;
};

class KilledRank : public RanksFixture {
 protected:
  void SetUp() override {
    make_ranks(2, {{"w", DType::kF32, {600, 100}}, {"b", DType::kF32, {41}}});
    boxes_[0].add(0, {0, 0}, {301, 100});
    boxes_[1].add(0, {301, 0}, {299, 100});
    boxes_[0].add(1, {0}, {20});
    boxes_[1].add(1, {20}, {21});
    fill(1);
  }
  // Forks a rank that sends steps 1, 2 and so on, as versions of those numbers, until a send fails; it then exits
  // with 7. At step 2 it gets the signal `number`. The parent has no threads yet.
  pid_t fork_rank(std::size_t rank, Moment moment, int number, const std::string& options = "") {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    absl::StatusOr<Sender> sender = listen(rank, 2, options);
    // Called once to register, then once for each step.
    const int at = moment == Moment::kInTheWrite ? 3 : 0;
    if (!sender.ok() ||
        !sender->register_shards(std::make_unique<SignalledShards>(boxes_[rank].tensors, at, number), "", patience())
             .ok())
      ::_exit(2);
    for (std::uint64_t step = 1;; ++step) {
      fill(static_cast<int>(step));
      if (step == 2 && moment == Moment::kBeforeTheSend) ::raise(number);
      if (!sender->send({.step = step}).ok()) ::_exit(7);
    }
  }
  void start_rank(std::size_t rank, const std::string& options = "") {
    senders_.resize(2);
    absl::StatusOr<Sender> sender = listen(rank, 2, options);
    ASSERT_THAT(sender, IsOk());
    senders_[rank].emplace(*std::move(sender));
    ASSERT_THAT(senders_[rank]->register_shards(source(boxes_[rank]), "", patience()), IsOk());
  }
  absl::Status send_on(std::size_t rank, std::uint64_t step) {
    fill(static_cast<int>(step));
    return senders_[rank]->send({.step = step}).status();
  }
  static int end_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
  }
};

TEST_F(KilledRank, IsShownAsGoneBeforeTheNextSend) {
  const pid_t pid = fork_rank(1, Moment::kBeforeTheSend, SIGKILL);
  start_rank(0);
  EXPECT_THAT(send_on(0, 1), IsOk());
  EXPECT_TRUE(WIFSIGNALED(end_of(pid)));
  const absl::StatusOr<Answer> answer = query_status(*Endpoint::parse(endpoint()), std::nullopt);
  ASSERT_THAT(answer, IsOk());
  ASSERT_EQ(answer->status.ranks.size(), 2U);
  EXPECT_EQ(answer->status.ranks[1].pid, pid);
  EXPECT_EQ(answer->status.ranks[1].state, "gone");
  EXPECT_TRUE(answer->status.ranks[1].gone_seconds.has_value());
  EXPECT_THAT(send_on(0, 2), StatusIs(StatusCode::kUnavailable, HasSubstr(cat("rank 1 (pid ", pid, ") is lost"))));
}

class AtAnyMoment : public KilledRank, public testing::WithParamInterface<Moment> {};
INSTANTIATE_TEST_SUITE_P(Killed, AtAnyMoment, testing::Values(Moment::kBeforeTheSend, Moment::kInTheWrite));

TEST_P(AtAnyMoment, ARankThatIsKilledAbortsTheVersionByName) {
  const pid_t pid = fork_rank(1, GetParam(), SIGKILL);
  start_rank(0);
  EXPECT_THAT(send_on(0, 1), IsOk());
  EXPECT_THAT(send_on(0, 2), StatusIs(StatusCode::kUnavailable, HasSubstr(cat("rank 1 (pid ", pid, ") is lost"))));
  EXPECT_EQ(senders_[0]->version(), 1U);
  EXPECT_TRUE(serves(1));
  EXPECT_TRUE(WIFSIGNALED(end_of(pid)));
}

TEST_P(AtAnyMoment, WithoutRank0TheOthersEndAndEnginesKeepTheirVersion) {
  const pid_t pid = fork_rank(0, GetParam(), SIGKILL);
  start_rank(1);
  EXPECT_THAT(send_on(1, 1), IsOk());
  absl::StatusOr<Receiver> engine = Receiver::connect({.endpoint = endpoint(), .worker = "early"});
  ASSERT_THAT(engine, IsOk());
  EXPECT_THAT(send_on(1, 2), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 is lost")));
  EXPECT_THAT(send_on(1, 3), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 is lost")));
  EXPECT_TRUE(WIFSIGNALED(end_of(pid)));
}

// It may write into the slot when it goes on: that slot is never published.
TEST_P(AtAnyMoment, ARankThatStandsStillIsGivenUpAndEndsWhenItGoesOn) {
  const std::string options = cat("?timeout=", 3 * kSlowdown, "s");
  const pid_t pid = fork_rank(1, GetParam(), SIGSTOP, options);
  start_rank(0, options);
  EXPECT_THAT(send_on(0, 1), IsOk());
  EXPECT_THAT(send_on(0, 2), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr(cat("rank 1 (pid ", pid, ")"))));
  EXPECT_TRUE(serves(1));
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  const int status = end_of(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_THAT(send_on(0, 3), testing::Not(IsOk()));
  EXPECT_TRUE(serves(1));
}

}  // namespace
}  // namespace bascule::test
