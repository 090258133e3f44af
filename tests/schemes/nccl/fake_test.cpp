// Checks that the fake keeps the real library's rules that its header names.
#include "support/nccl/fake_nccl.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "support/status.h"

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::FakeNccl;
using test::IsOk;
using test::StatusIs;
using testing::_;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;
constexpr std::size_t kMemoryBytes = 64;

Bytes filled(int value) { return Bytes(kMemoryBytes, static_cast<std::byte>(value)); }
const absl::Duration kSoon = absl::Seconds(20), kNow = absl::ZeroDuration();

struct FakeRank {
  CommHandle* comm = nullptr;
  Stream stream = nullptr;
  Bytes memory = filled(0);
};

class NcclFake : public testing::Test {
 protected:
  NcclFake() { fake.renew(); }
  ~NcclFake() override { fake.renew(); }

  UniqueId draw() const {
    UniqueId id;
    EXPECT_EQ(nccl.get_unique_id(&id), Code::kSuccess);
    return id;
  }
  static Config config() {
    Config config;
    config.blocking = 0;
    config.comm_name = "test";
    return config;
  }
  Code init(FakeRank& rank, int ranks, const UniqueId& id, int number) const {
    Config settings = config();
    return nccl.comm_init_rank_config(&rank.comm, ranks, id, number, &settings);
  }
  Code poll(const FakeRank& rank) const {
    Code state = Code::kSuccess;
    EXPECT_EQ(nccl.comm_get_async_error(rank.comm, &state), Code::kSuccess);
    return state;
  }
  Code settle(const FakeRank& rank) const {
    for (const Deadline deadline(kSoon); !deadline.passed(); std::this_thread::yield())
      if (const Code state = poll(rank); state != Code::kInProgress) return state;
    return Code::kInProgress;
  }
  std::vector<FakeRank> ranks(int count) const {
    std::vector<FakeRank> all(static_cast<std::size_t>(count));
    const UniqueId id = draw();
    for (int i = 0; i < count; ++i) {
      all[static_cast<std::size_t>(i)].stream = fake.make_stream();
      EXPECT_EQ(init(all[static_cast<std::size_t>(i)], count, id, i), Code::kInProgress);
    }
    for (const FakeRank& rank : all) EXPECT_EQ(settle(rank), Code::kSuccess);
    return all;
  }
  // In place, from rank 0's memory to all.
  Code post(FakeRank& rank, std::size_t bytes = kMemoryBytes, int root = 0) const {
    const Code code =
        nccl.broadcast(rank.memory.data(), rank.memory.data(), bytes, kUint8, root, rank.comm, rank.stream);
    return code == Code::kInProgress ? settle(rank) : code;
  }
  absl::Status passed(const FakeRank& rank, absl::Duration timeout = kSoon) const {
    return fake.mark(rank.stream)->wait(Deadline(timeout));
  }

  FakeNccl& fake = FakeNccl::instance();
  const Library& nccl = fake.library();
};

TEST_F(NcclFake, AnInitIsDoneOnceAllRanksHaveCalled) {
  const UniqueId id = draw();
  FakeRank a, b;
  EXPECT_EQ(init(a, 2, id, 0), Code::kInProgress);
  EXPECT_EQ(fake.unused_ids(), 0);
  EXPECT_EQ(fake.live_threads(), 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(poll(a), Code::kInProgress);
  EXPECT_EQ(init(b, 2, id, 1), Code::kInProgress);
  EXPECT_EQ(poll(b), Code::kInProgress);
  EXPECT_EQ(poll(b), Code::kSuccess);
  EXPECT_EQ(poll(a), Code::kSuccess);
  EXPECT_EQ(fake.live_threads(), 0);
  EXPECT_EQ(fake.live_comms(), 2);
  EXPECT_EQ(fake.misuses(), 0);
}

TEST_F(NcclFake, CountsIdsThatNobodyUsed) {
  EXPECT_NE(draw().bytes, draw().bytes);
  EXPECT_EQ(fake.ids(), 2);
  EXPECT_EQ(fake.unused_ids(), 2);
  EXPECT_EQ(fake.live_threads(), 2);
  fake.renew();
  EXPECT_EQ(fake.ids(), 0);
}

TEST_F(NcclFake, CopiesTheRootsBytesToAllFromTheirThreads) {
  std::vector<FakeRank> all = ranks(3);
  all[0].memory = filled(7);
  std::vector<std::thread> threads;
  for (FakeRank& rank : all)
    threads.emplace_back([this, &rank] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(post(rank), Code::kSuccess);
        EXPECT_THAT(passed(rank), IsOk());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const FakeRank& rank : all) EXPECT_EQ(rank.memory, filled(7));
  EXPECT_EQ(fake.broadcasts(), 50);
  EXPECT_THAT(fake.misuse_texts(), testing::IsEmpty());
}

TEST_F(NcclFake, QueuesBroadcastsInOrderWithOtherWork) {
  std::vector<FakeRank> all = ranks(2);
  all[0].memory = filled(1);
  EXPECT_EQ(post(all[0]), Code::kSuccess);
  fake.give(all[0].stream, [&] { std::ranges::fill(all[0].memory, std::byte{2}); });  // where it lies
  EXPECT_EQ(post(all[0]), Code::kSuccess);
  EXPECT_THAT(passed(all[0], kNow), StatusIs(StatusCode::kDeadlineExceeded, _)) << "the other rank has not posted";
  Bytes between;
  EXPECT_EQ(post(all[1]), Code::kSuccess);
  fake.give(all[1].stream, [&] { between = all[1].memory; });
  EXPECT_EQ(post(all[1]), Code::kSuccess);
  EXPECT_THAT(passed(all[0]), IsOk());
  EXPECT_THAT(passed(all[1]), IsOk());
  EXPECT_EQ(between, filled(1));
  EXPECT_EQ(all[1].memory, filled(2));
}

TEST_F(NcclFake, TwoCommunicatorsShareAStream) {
  std::vector<FakeRank> one = ranks(2), other = ranks(2);
  other[0].stream = one[0].stream;
  one[0].memory = filled(3);
  other[0].memory = filled(4);
  for (std::vector<FakeRank>* all : {&one, &other})
    for (FakeRank& rank : *all) EXPECT_EQ(post(rank), Code::kSuccess);
  EXPECT_THAT(passed(one[0]), IsOk());
  EXPECT_EQ(one[1].memory, filled(3));
  EXPECT_EQ(other[1].memory, filled(4));
}

TEST_F(NcclFake, RanksThatPostDifferentThingsGetAnErrorAndStayWhereTheyAre) {
  for (const auto& [bytes, root] : {std::pair<std::size_t, int>{kMemoryBytes - 1, 0}, {kMemoryBytes, 1}}) {
    std::vector<FakeRank> all = ranks(2);
    EXPECT_EQ(post(all[0]), Code::kSuccess);
    EXPECT_THAT(post(all[1], bytes, root), testing::AnyOf(Code::kSuccess, Code::kInvalidUsage));
    for (const FakeRank& rank : all) {
      EXPECT_EQ(poll(rank), Code::kInvalidUsage);
      EXPECT_THAT(passed(rank, kNow), StatusIs(StatusCode::kDeadlineExceeded, _));
      EXPECT_EQ(nccl.comm_abort(rank.comm), Code::kSuccess);
      EXPECT_THAT(passed(rank), IsOk());
    }
  }
}

TEST_F(NcclFake, AMarkTooEarlyComesBeforeTheBroadcastAndIsCounted) {
  std::vector<FakeRank> all = ranks(2);
  FakeRank& a = all[0];
  EXPECT_EQ(nccl.broadcast(a.memory.data(), a.memory.data(), kMemoryBytes, kUint8, 0, a.comm, a.stream),
            Code::kInProgress);
  EXPECT_THAT(passed(a, kNow), IsOk());
  EXPECT_THAT(fake.misuse_texts(), ElementsAre(HasSubstr("still posts a broadcast")));
}

TEST_F(NcclFake, CountsCallsInProgress) {
  const UniqueId id = draw();
  FakeRank a;
  EXPECT_EQ(init(a, 2, id, 0), Code::kInProgress);
  EXPECT_EQ(post(a), Code::kInvalidArgument);
  EXPECT_EQ(nccl.comm_finalize(a.comm), Code::kInvalidArgument);
  EXPECT_EQ(nccl.comm_destroy(a.comm), Code::kInvalidArgument);
  EXPECT_EQ(fake.misuses(), 3);
  EXPECT_EQ(nccl.comm_abort(a.comm), Code::kSuccess);
  EXPECT_EQ(fake.misuses(), 3);
  EXPECT_EQ(fake.live_comms(), 0);
  EXPECT_EQ(fake.live_threads(), 1) << "the second rank never came";
}

TEST_F(NcclFake, CountsCallsOnACommunicatorThatIsGone) {
  std::vector<FakeRank> all = ranks(1);
  EXPECT_EQ(nccl.comm_abort(all[0].comm), Code::kSuccess);
  EXPECT_EQ(nccl.comm_abort(all[0].comm), Code::kInvalidArgument);
  Code state = Code::kSuccess;
  EXPECT_EQ(nccl.comm_get_async_error(all[0].comm, &state), Code::kInvalidArgument);
  EXPECT_EQ(post(all[0]), Code::kInvalidArgument);
  EXPECT_EQ(fake.misuses(), 3);
  fake.renew();
  EXPECT_EQ(nccl.comm_destroy(all[0].comm), Code::kInvalidArgument) << "also one of before renew()";
}

TEST_F(NcclFake, RefusesAConfigurationThatNcclWouldRefuse) {
  const UniqueId id = draw();
  CommHandle* comm = nullptr;
  Config settings = config();
  settings.magic = 0;
  EXPECT_EQ(nccl.comm_init_rank_config(&comm, 1, id, 0, &settings), Code::kInvalidArgument);
  settings = config();
  settings.min_ctas = 1;  // above max_ctas, which is not set
  EXPECT_EQ(nccl.comm_init_rank_config(&comm, 1, id, 0, &settings), Code::kInvalidArgument);
  settings.max_ctas = 4;
  EXPECT_EQ(nccl.comm_init_rank_config(&comm, 1, id, 0, &settings), Code::kInProgress);
  EXPECT_EQ(fake.last_config().max_ctas, 4);
  EXPECT_EQ(fake.misuses(), 2);
}

TEST_F(NcclFake, FinalizesOnceItsBroadcastsAreDone) {
  std::vector<FakeRank> all = ranks(2);
  EXPECT_EQ(post(all[0]), Code::kSuccess);
  EXPECT_EQ(nccl.comm_finalize(all[0].comm), Code::kInProgress);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(poll(all[0]), Code::kInProgress);
  EXPECT_EQ(post(all[1]), Code::kSuccess);
  EXPECT_EQ(settle(all[0]), Code::kSuccess);
  EXPECT_EQ(nccl.comm_destroy(all[0].comm), Code::kSuccess);
  EXPECT_EQ(fake.live_comms(), 1);
  EXPECT_EQ(fake.misuses(), 0);
}

TEST_F(NcclFake, AStalledRankHoldsUpTheOthersUntilItGoesOn) {
  std::vector<FakeRank> all = ranks(2);
  all[0].memory = filled(5);
  fake.stall(all[1].stream);
  for (FakeRank& rank : all) EXPECT_EQ(post(rank), Code::kSuccess);
  EXPECT_THAT(passed(all[0], absl::Milliseconds(10)), StatusIs(StatusCode::kDeadlineExceeded, _));
  EXPECT_EQ(poll(all[0]), Code::kSuccess) << "no error";
  fake.go_on(all[1].stream);
  EXPECT_THAT(passed(all[0]), IsOk());
  EXPECT_EQ(all[1].memory, filled(5));
}

TEST_F(NcclFake, ADeadRankGivesNoErrorAndAnAbortLeavesHalfOfTheBytes) {
  std::vector<FakeRank> all = ranks(3);
  all[0].memory = filled(6);
  fake.kill(all[2].stream);
  for (FakeRank& rank : all) EXPECT_EQ(post(rank), Code::kSuccess);
  EXPECT_EQ(post(all[1]), Code::kSuccess);
  for (const FakeRank& rank : all) EXPECT_EQ(poll(rank), Code::kSuccess);
  EXPECT_EQ(nccl.comm_abort(all[1].comm), Code::kSuccess);
  EXPECT_THAT(passed(all[1]), IsOk());
  EXPECT_THAT(Bytes(all[1].memory.begin(), all[1].memory.begin() + kMemoryBytes / 2), Each(std::byte{6}));
  EXPECT_THAT(Bytes(all[1].memory.begin() + kMemoryBytes / 2, all[1].memory.end()), Each(std::byte{0}));
  EXPECT_THAT(passed(all[0], kNow), StatusIs(StatusCode::kDeadlineExceeded, _)) << "it has not aborted";
  EXPECT_EQ(nccl.comm_abort(all[0].comm), Code::kSuccess);
  EXPECT_THAT(passed(all[0]), IsOk());
  EXPECT_EQ(all[0].memory, filled(6));
  EXPECT_EQ(all[2].memory, filled(0));
}

TEST_F(NcclFake, AnAbortTakesBackWhatIsBeingPosted) {
  std::vector<FakeRank> all = ranks(2);
  FakeRank& a = all[0];
  EXPECT_EQ(nccl.broadcast(a.memory.data(), a.memory.data(), kMemoryBytes, kUint8, 0, a.comm, a.stream),
            Code::kInProgress);
  EXPECT_EQ(nccl.comm_abort(a.comm), Code::kSuccess);
  EXPECT_THAT(passed(a), IsOk());
  EXPECT_EQ(fake.misuses(), 0);
}

TEST_F(NcclFake, FailsAsItIsTold) {
  const UniqueId id = draw();
  FakeRank a;
  fake.fail_init(1);
  EXPECT_EQ(init(a, 1, id, 0), Code::kInProgress);
  EXPECT_EQ(settle(a), Code::kSystemError);
  EXPECT_EQ(nccl.comm_abort(a.comm), Code::kSuccess);
  fake.fail_unique_id(1);
  UniqueId none;
  EXPECT_EQ(nccl.get_unique_id(&none), Code::kSystemError);

  std::vector<FakeRank> all = ranks(2);
  fake.fail_broadcast(1);
  EXPECT_EQ(post(all[0]), Code::kSystemError);
  EXPECT_EQ(poll(all[0]), Code::kSystemError);

  all = ranks(2);
  fake.fail_broadcast_late(1);
  EXPECT_EQ(post(all[0]), Code::kSuccess);
  EXPECT_EQ(post(all[1]), Code::kSuccess);
  EXPECT_EQ(poll(all[0]), Code::kRemoteError);
  EXPECT_EQ(poll(all[1]), Code::kSuccess) << "the other is not told";
  EXPECT_THAT(passed(all[0], kNow), StatusIs(StatusCode::kDeadlineExceeded, _));
  EXPECT_EQ(fake.misuses(), 0);
}

TEST_F(NcclFake, ASlowInitTakesItsTimeBehindTheLastRank) {
  fake.slow_init(std::chrono::milliseconds(30));
  const auto from = Clock::now();
  EXPECT_EQ(ranks(2).size(), 2u);
  EXPECT_GE(Clock::now() - from, std::chrono::milliseconds(30));
}

TEST_F(NcclFake, AnAbortHangsUntilItIsFreed) {
  std::vector<FakeRank> all = ranks(2);
  EXPECT_EQ(post(all[0]), Code::kSuccess);
  fake.hang_abort(1);
  std::thread thread([&] { EXPECT_EQ(nccl.comm_abort(all[0].comm), Code::kSuccess); });
  EXPECT_TRUE(fake.wait_for_hung_aborts(1, Deadline(kSoon)));
  EXPECT_EQ(fake.live_comms(), 2);
  EXPECT_THAT(passed(all[0], kNow), StatusIs(StatusCode::kDeadlineExceeded, _));
  fake.free_aborts();
  thread.join();
  EXPECT_EQ(fake.aborts(), 1);
  EXPECT_THAT(passed(all[0]), IsOk());
}

TEST_F(NcclFake, ARevokeEndsBroadcastsAndLeavesACommunicatorToAbort) {
  std::vector<FakeRank> all = ranks(2);
  EXPECT_EQ(post(all[0]), Code::kSuccess);
  EXPECT_EQ(nccl.comm_revoke(all[0].comm, 0), Code::kInProgress);
  EXPECT_EQ(settle(all[0]), Code::kSuccess);
  EXPECT_THAT(passed(all[0]), IsOk());
  EXPECT_EQ(post(all[0]), Code::kInvalidUsage);
  EXPECT_EQ(nccl.comm_abort(all[0].comm), Code::kSuccess);
  EXPECT_EQ(fake.library_without_revoke().comm_revoke, nullptr);
}

TEST_F(NcclFake, SeesANameThatDidNotLiveAsLongAsItsCommunicator) {
  const UniqueId id = draw();
  std::string name = "policy";
  Config settings = config();
  settings.comm_name = name.c_str();
  FakeRank a;
  EXPECT_EQ(nccl.comm_init_rank_config(&a.comm, 1, id, 0, &settings), Code::kInProgress);
  EXPECT_EQ(settle(a), Code::kSuccess);
  std::ranges::fill(name, '?');
  EXPECT_EQ(nccl.comm_finalize(a.comm), Code::kInvalidArgument);
  EXPECT_THAT(fake.misuse_texts(), ElementsAre(HasSubstr("comm_name")));
}

}  // namespace
}  // namespace bascule::inline v0::nccl
