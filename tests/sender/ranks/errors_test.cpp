// What fails on one rank: all ranks are told, and the next send is right.
#include <atomic>

#include "absl/time/clock.h"
#include "sender/ranks/ranks_fixture.h"

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Tensors that the test changes between sends.
class ChangedShards final : public ShardSource {
 public:
  explicit ChangedShards(const std::vector<ShardedTensor>& tensors) : tensors_(tensors) {}
  absl::StatusOr<std::span<const ShardedTensor>> tensors() override { return tensors_; }

 private:
  const std::vector<ShardedTensor>& tensors_;
};

// w is cut by rows; rank 1 alone holds c and d.
class RankErrors : public RanksFixture, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    use_scheme(GetParam());
    make_ranks(2, {{"w", DType::kF32, {90, 70}}, {"c", DType::kF32, {20}}, {"d", DType::kF32, Shape(7, 2)}});
    boxes_[0].add(0, {0, 0}, {45, 70});
    boxes_[1].add(0, {45, 0}, {45, 70});
    boxes_[1].add(1, {0}, {20});
    hold_d();
    fill(1);
  }
  virtual void hold_d() { boxes_[1].add(2, Shape(7, 0), Shape(7, 2)); }
  // The tensors may change afterwards.
  void start_changed() {
    senders_.resize(2);
    on_all_ranks([&](std::size_t rank) {
      senders_[rank].emplace(*listen(rank, 2));
      EXPECT_THAT(
          senders_[rank]->register_shards(std::make_unique<ChangedShards>(boxes_[rank].tensors), "", patience()),
          IsOk());
      return 0;
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Over, RankErrors, testing::Values("shm", "memmap", "regions"));

TEST_P(RankErrors, TensorsThatNoVersionCanHaveAreRefusedOnAllRanks) {
  for (const auto& [name, text] :
       {std::pair("w", "w stands twice"), std::pair("", "name"), std::pair("\xff", "UTF-8")}) {
    for (HeldBoxes& held : boxes_) held.tensors[1].spec.name = name;
    EXPECT_THAT(start(), Each(StatusIs(StatusCode::kInvalidArgument, HasSubstr(text))));
    for (const auto& report : send(1)) EXPECT_FALSE(report.ok());
  }
}

TEST_P(RankErrors, StridesThatChangedBesideAnErrorAreNotForgotten) {
  start_changed();
  for (const std::uint64_t step : {1, 2})  // both slots
    for (const auto& report : send(step)) ASSERT_THAT(report, IsOk());
  std::vector<float> columns(45 * 70);
  for (std::size_t i = 0; i < 45; ++i)
    for (std::size_t j = 0; j < 70; ++j) columns[j * 45 + i] = value(1, 0, (45 + i) * 70 + j);
  Shard& shard = boxes_[1].tensors[0].shards[0];
  shard.data = columns.data();
  shard.strides = {1, 45};
  const void* const data = std::exchange(boxes_[1].tensors[1].shards[0].data, nullptr);
  for (const auto& report : send(3))
    EXPECT_THAT(report.status(),
                StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("rank 1"), HasSubstr("no data"))));
  boxes_[1].tensors[1].shards[0].data = data;
  for (const auto& report : send(4)) EXPECT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

// Tensor d lies on one rank, in more strides than a pass can follow.
class OddStrides : public RankErrors {
 protected:
  void hold_d() override {}
  void refuse(Shard& shard, std::uint64_t step) {
    for (const std::uint64_t end = step + 3; step < end; ++step)
      for (const auto& report : send(step))
        EXPECT_THAT(report.status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("make it contiguous"))) << step;
    shard.strides = {};
    for (const auto& report : send(step)) EXPECT_THAT(report, IsOk());
    EXPECT_TRUE(serves(1));
  }
};

INSTANTIATE_TEST_SUITE_P(Over, OddStrides, testing::Values("shm", "memmap", "regions"));

TEST_P(OddStrides, AreRefusedUntilTheyAreGone) {
  for (const std::size_t rank : {0, 1}) {
    boxes_[rank].add(2, Shape(7, 0), Shape(7, 2));
    fill(1);
    Shard& shard = boxes_[rank].tensors[2].shards[0];
    const Shape odd = {1, 2, 4, 8, 16, 32, 64};
    shard.strides = odd;
    start_changed();
    refuse(shard, 1);
    shard.strides = odd;
    refuse(shard, 5);
    senders_.clear();
    boxes_[rank].tensors[2].shards.clear();
    boxes_[rank].memory.pop_back();
  }
}

TEST_P(RankErrors, ALateCallEndsAtOnceAndTheNextStepIsSent) {
  start_well(cat("?timeout=", 2 * kSlowdown, "s"));
  const auto is_late = [](int step) {
    return StatusIs(StatusCode::kDeadlineExceeded,
                    AllOf(HasSubstr("rank 1 (pid "), HasSubstr(cat("has not called send() for step ", step))));
  };
  for (const int step : {1, 2})
    EXPECT_THAT(senders_[0]->send({.step = static_cast<std::uint64_t>(step)}), is_late(step));
  for (const int step : {1, 2})
    EXPECT_THAT(senders_[1]->send({.step = static_cast<std::uint64_t>(step)}), is_late(step));
  for (const auto& report : send(3)) EXPECT_THAT(report, IsOk());
  // A rank that leaves a step out.
  EXPECT_THAT(senders_[0]->send({.step = 4}), is_late(4));
  for (const auto& report : send(5)) EXPECT_THAT(report, IsOk());
  // The same step again.
  EXPECT_THAT(senders_[0]->send({.step = 6}), is_late(6));
  EXPECT_THAT(senders_[1]->send_async({.step = 6}), is_late(6));
  for (const auto& report : send(6)) EXPECT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

TEST_P(RankErrors, ASendThatIsInterruptedEndsOnAllRanksAndTheNextReportHasItsOutcome) {
  const auto interrupted = std::make_shared<std::atomic<bool>>(false);
  const std::string options = cat("?load_timeout=1s&timeout=", 5 * kSlowdown, "s&flip_timeout=", 5 * kSlowdown, "s");
  senders_.resize(2);
  on_all_ranks([&](std::size_t rank) {
    absl::StatusOr<Sender> sender =
        Sender::listen({.endpoint = endpoint(options),
                        .threads = 1,
                        .interrupted = [interrupted, rank] { return rank == 0 && *interrupted; },
                        .rank = static_cast<std::uint32_t>(rank),
                        .ranks = 2,
                        .scheme = scheme_given_});
    EXPECT_THAT(sender, IsOk());
    senders_[rank].emplace(*std::move(sender));
    EXPECT_THAT(senders_[rank]->register_shards(source(boxes_[rank]), "", patience()), IsOk());
    return 0;
  });
  absl::StatusOr<Receiver> engine =
      Receiver::connect({.endpoint = endpoint(), .worker = "engine", .scheme = scheme_given_});
  ASSERT_THAT(engine, IsOk());
  engine->join();
  ASSERT_THAT(senders_[0]->wait_for_workers(1, patience()), IsOk());
  std::thread stopper([&] {
    EXPECT_THAT(engine->wait_ready(patience()), IsOk());  // and does not flip
    *interrupted = true;
  });
  for (const auto& report : send(1)) EXPECT_THAT(report, StatusIs(StatusCode::kCancelled, HasSubstr("interrupted")));
  stopper.join();
  *interrupted = false;
  std::atomic<bool> over = false;
  std::thread flips([&] {
    while (!over) {
      engine->commit();
      absl::SleepFor(absl::Milliseconds(1));
    }
  });
  const auto reports = send(2);
  over = true;
  flips.join();
  for (const auto& report : reports) {
    ASSERT_THAT(report, IsOk());
    ASSERT_EQ(report->updates.size(), 1U);
    EXPECT_EQ(report->updates[0].version, 1U);
    EXPECT_THAT(report->updates[0].status, IsOk());
    ASSERT_EQ(report->updates[0].workers.size(), 1U);
    EXPECT_EQ(report->updates[0].workers[0].worker, "engine");
  }
}

}  // namespace
}  // namespace bascule::test
