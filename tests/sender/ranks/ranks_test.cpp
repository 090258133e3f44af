// Several ranks send one version without a gather, and engines see ordinary slots.
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "sender/ranks/two_ranks.h"
#include <bascule/receiver/status.h>
#include <bascule/receiver/status_query.h>
#include <bascule/transport/endpoint.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Over, TwoRanks, testing::Values("shm", "memmap", "regions"));

TEST_P(TwoRanks, SendOneVersionAndGetTheSameReport) {
  start_well("?digest=always");
  std::vector<absl::StatusOr<SendReport>> reports = send(7);
  for (const auto& report : reports) ASSERT_THAT(report, IsOk());
  EXPECT_EQ(reports[0]->version, 1U);
  EXPECT_EQ(reports[1]->version, 1U);
  EXPECT_EQ(reports[0]->digest, reports[1]->digest);
  EXPECT_EQ(senders_[1]->version(), 1U);
  EXPECT_TRUE(serves(1));
  for (int version = 2; version < 8; ++version) {
    fill(version);
    for (const auto& report : send(static_cast<std::uint64_t>(version + 6))) ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(serves(version));
  }
}

TEST_P(TwoRanks, MakeTheDigestOfAWholeModel) {
  if (scheme_given_ != nullptr) GTEST_SKIP() << "regions lie apart, so the bytes of a slot are others";
  start_well();
  const auto sharded = send(1);
  ASSERT_THAT(sharded[0], IsOk());
  senders_.clear();
  HeldBoxes whole;
  for (const ShardedTensor& tensor : boxes_[0].tensors) whole.tensors.push_back({.spec = tensor.spec});
  for (std::size_t t = 0; t < 4; ++t)
    whole.add(t, Shape(whole.tensors[t].spec.shape.size(), 0), whole.tensors[t].spec.shape);
  whole.fill([](std::size_t t, std::uint64_t i) { return value(1, t, i); });
  std::vector<std::pair<TensorSpec, const void*>> tensors;
  for (std::size_t t = 0; t < 4; ++t) tensors.emplace_back(whole.tensors[t].spec, whole.memory[t].data());
  absl::StatusOr<Sender> one = listen(0, 1);
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(one->register_model(host_tensors(std::move(tensors))), IsOk());
  const absl::StatusOr<SendReport> report = one->send();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->digest, sharded[0]->digest);
}

TEST_P(TwoRanks, WaitForAnEngineOnRank0AndReportItOnAll) {
  start_well();
  absl::StatusOr<Receiver> engine =
      Receiver::connect({.endpoint = endpoint(), .worker = "engine-0", .scheme = scheme_given_});
  ASSERT_THAT(engine, IsOk());
  std::atomic<bool> over = false;
  std::thread serving([&] {
    while (!over) {
      engine->commit();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_THAT(senders_[1]->wait_for_workers(1, patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("call it on rank 0")));
  EXPECT_THAT(senders_[0]->wait_for_workers(1, patience()), IsOk());
  for (int version = 1; version < 20; ++version) {
    for (const auto& report : send(static_cast<std::uint64_t>(version))) {
      EXPECT_THAT(report, IsOk());
      if (!report.ok()) continue;
      ASSERT_EQ(report->workers.size(), 1U);
      EXPECT_EQ(report->workers[0].worker, "engine-0");
      EXPECT_EQ(report->workers[0].state, WorkerState::kServing);
      EXPECT_EQ(report->workers[0].bytes, (BytesRead{.read = report->bytes, .verified = 0})) << "in place";
    }
  }
  over = true;
  serving.join();
}

// Its rows come from both ranks' boxes, which fill the table together.
TEST_P(TwoRanks, AnEngineThatCopiesPartsVerifiesThem) {
  start_well();
  for (const bool always : {false, true}) {
    SCOPED_TRACE(always);
    std::vector<float> rows(600 * 70);
    absl::StatusOr<Receiver> engine = Receiver::connect(
        {.endpoint = cat(endpoint(), always ? "?digest=always" : ""), .worker = "engine-0", .scheme = scheme_given_});
    ASSERT_THAT(engine, IsOk());
    const TargetTensor target{.name = "rows",
                              .dtype = DType::kF32,
                              .shape = {600, 70},
                              .data = reinterpret_cast<std::byte*>(rows.data()),
                              .parts = {{"w", {{.dim = 0, .begin = 100, .end = 700}}}}};
    ASSERT_THAT(engine->register_model({target}, {.apply = Apply::kCommit, .partial = true}), IsOk());
    engine->join();
    std::atomic<bool> over = false;
    std::thread serving([&] {
      while (!over) {
        engine->commit();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    EXPECT_THAT(senders_[0]->wait_for_workers(1, patience()), IsOk());
    const int version = always ? 2 : 1;
    fill(version);
    for (const auto& report : send(static_cast<std::uint64_t>(version))) {
      EXPECT_THAT(report, IsOk());
      if (!report.ok()) continue;
      const auto worker = std::ranges::find(report->workers, WorkerState::kServing, &WorkerReport::state);
      ASSERT_NE(worker, report->workers.end());
      ASSERT_TRUE(worker->bytes.has_value());
      EXPECT_LT(worker->bytes->read, report->bytes) << "not the whole version";
      EXPECT_EQ(worker->bytes->verified == worker->bytes->read, always) << "of " << worker->bytes->read << " bytes";
    }
    over = true;
    serving.join();
    for (std::uint64_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], value(version, 0, 100 * 70 + i));
  }
}

TEST_P(TwoRanks, SendInTheBackground) {
  start_well();
  const auto begun = on_all_ranks([&](std::size_t rank) { return senders_[rank]->send_async({.step = 3}); });
  for (const auto& status : begun) ASSERT_THAT(*status, IsOk());
  EXPECT_THAT(senders_[1]->send_async({.step = 4}), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("wait_async")));
  fill(2);  // the boxes may change again
  const auto ended = on_all_ranks([&](std::size_t rank) { return senders_[rank]->wait_async(); });
  for (const auto& report : ended) EXPECT_THAT(*report, IsOk());
  EXPECT_TRUE(serves(1));
  EXPECT_THAT(senders_[1]->wait_async(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("No async send")));
}

TEST_P(TwoRanks, SendWithoutADigest) {
  start_well("?digest=off");
  const auto reports = send(1);
  for (const auto& report : reports) ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(reports[1]->digest);
  EXPECT_TRUE(serves(1));
}

TEST_P(TwoRanks, PlaceFusedTensorsSideBySide) {
  start_well("?flip_timeout=100ms");  // the engine does not flip
  absl::StatusOr<Receiver> engine = Receiver::connect({.endpoint = endpoint(),
                                                       .worker = "fuses",
                                                       .fused = {{.name = "cb", .parts = {"c", "b"}}},
                                                       .scheme = scheme_given_});
  if (engine.ok()) engine->join();
  for (const auto& report : send(1)) ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

TEST_P(TwoRanks, CodeOfTheUserThatThrowsFailsTheVersionOnAll) {
  struct Throwing final : ShardSource {
    explicit Throwing(std::vector<ShardedTensor> all) : tensors_(std::move(all)) {}
    absl::StatusOr<std::span<const ShardedTensor>> tensors() override {
      if (++calls_ == 2) throw std::runtime_error("the optimizer holds them");
      return tensors_;
    }
    std::vector<ShardedTensor> tensors_;
    int calls_ = 0;
  };
  senders_.resize(2);
  on_all_ranks([&](std::size_t rank) {
    senders_[rank].emplace(*listen(rank, 2));
    EXPECT_THAT(senders_[rank]->register_shards(
                    rank == 0 ? source(boxes_[0]) : std::make_unique<Throwing>(boxes_[1].tensors), "", patience()),
                IsOk());
    return 0;
  });
  for (const auto& report : send(1))
    EXPECT_THAT(report.status().ToString(), AllOf(HasSubstr("rank 1"), HasSubstr("the optimizer holds them")));
  for (const auto& report : send(2)) EXPECT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

TEST_P(TwoRanks, CastOnTheWay) {
  start_well("?wire_dtype=bf16");
  ASSERT_THAT(send(1)[1], IsOk());
  absl::StatusOr<Receiver> engine =
      Receiver::connect({.endpoint = endpoint(), .worker = "engine", .scheme = scheme_given_});
  ASSERT_THAT(engine, IsOk());
  ASSERT_THAT(engine->wait_ready(patience()), IsOk());
  const TensorView* const view = engine->weights(engine->commit().slot).find("u");
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->dtype, DType::kBF16);
  for (std::uint64_t i = 0; i < 400 * 80; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, view->data + 2 * i, sizeof(half));
    ASSERT_NEAR(std::bit_cast<float>(std::uint32_t{half} << 16), value(1, 1, i), 4096) << i;
  }
}

TEST_P(TwoRanks, AtOtherStepsSendNothingAndSayWhich) {
  start_well();
  const auto reports =
      on_all_ranks([&](std::size_t rank) { return senders_[rank]->send({.step = rank == 0 ? 5U : 6U}); });
  for (const auto& report : reports)
    EXPECT_THAT(*report,
                StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("rank 0 calls send() for step 5"),
                                                                HasSubstr("rank 1"), HasSubstr("for step 6"))));
  for (const auto& report : send(7)) EXPECT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

TEST_P(TwoRanks, ALateRankIsNamedAndTheNextStepIsSent) {
  start_well(cat("?timeout=", 3 * kSlowdown, "s"));  // also for each step of a busy machine
  EXPECT_THAT(
      senders_[0]->send({.step = 1}),
      StatusIs(StatusCode::kDeadlineExceeded, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("has not called send()"))));
  EXPECT_THAT(senders_[0]->version(), 0U);
  for (std::uint64_t step = 2;; ++step) {  // a busy machine may make a rank late again
    ASSERT_LT(step, 20U);
    const auto reports = send(step);
    if (reports[0].ok() && reports[1].ok()) break;
  }
  EXPECT_TRUE(serves(1));
}

TEST_P(TwoRanks, ARankThatIsGoneIsNamedAndCannotComeBackAlone) {
  start_well();
  for (const auto& report : send(1)) ASSERT_THAT(report, IsOk());
  senders_[1].reset();
  EXPECT_THAT(senders_[0]->send({.step = 2}),
              StatusIs(StatusCode::kUnavailable, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("is lost"))));
  absl::StatusOr<Sender> again = listen(1, 2);
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->register_shards(source(boxes_[1]), "", patience()),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("comes alone"), HasSubstr("start all ranks of the trainer again"))));
  EXPECT_THAT(senders_[0]->send({.step = 3}), StatusIs(StatusCode::kUnavailable, HasSubstr("is lost")));
  EXPECT_TRUE(serves(1)) << "engines keep the last whole version";
  start_well();  // all together
  fill(2);
  for (const auto& report : send(3)) EXPECT_THAT(report, IsOk());
  EXPECT_TRUE(serves(2));
}

TEST_P(TwoRanks, AreShownByTheStatus) {
  start_well();
  const auto ranks = [&] {
    const absl::StatusOr<Answer> answer = query_status(*Endpoint::parse(endpoint()), std::nullopt);
    EXPECT_THAT(answer, IsOk());
    return answer.ok() ? answer->status.ranks : std::vector<RankStatus>();
  };
  std::vector<RankStatus> shown = ranks();
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_EQ(shown[1].pid, ::getpid());
  EXPECT_EQ(shown[1].state, "joined");
  EXPECT_EQ(shown[0].bytes + shown[1].bytes, 4U * (900 * 70 + 400 * 80 + 33 + 20));
  EXPECT_FALSE(shown[1].gone_seconds.has_value());
  senders_[1].reset();
  shown = ranks();
  EXPECT_EQ(shown[0].state, "joined");
  EXPECT_EQ(shown[1].state, "gone");
  EXPECT_TRUE(shown[1].gone_seconds.has_value());
  const absl::StatusOr<Observation> seen = observe({.target = endpoint(), .scheme = scheme_given_});
  ASSERT_THAT(seen, IsOk());
  EXPECT_THAT(seen->wrong(), testing::Contains(HasSubstr(cat("rank 1 (pid ", ::getpid(), ") for "))));
  EXPECT_FALSE(senders_[0]->send({.step = 1}).ok());
  EXPECT_EQ(ranks()[1].state, "lost");
  EXPECT_TRUE(ranks()[1].gone_seconds.has_value());
}

TEST_P(TwoRanks, WithoutRank0TheOthersSaySo) {
  start_well();
  senders_[0].reset();
  EXPECT_THAT(senders_[1]->send({.step = 1}), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 is lost")));
  EXPECT_THAT(senders_[1]->send({.step = 2}), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 is lost")));
}

TEST_P(TwoRanks, BoxesThatMoveInTheTensorAreRefused) {
  struct Moving final : ShardSource {
    explicit Moving(std::vector<ShardedTensor>& all) : tensors_(all) {}
    absl::StatusOr<std::span<const ShardedTensor>> tensors() override { return tensors_; }
    std::vector<ShardedTensor>& tensors_;
  };
  std::vector<ShardedTensor> moving = boxes_[1].tensors;
  senders_.resize(2);
  on_all_ranks([&](std::size_t rank) {
    senders_[rank].emplace(*listen(rank, 2));
    EXPECT_THAT(senders_[rank]->register_shards(rank == 0 ? source(boxes_[0]) : std::make_unique<Moving>(moving), "",
                                                patience()),
                IsOk());
    return 0;
  });
  const Shape before = std::exchange(moving[0].shards[0].offset, Shape{0, 0});
  EXPECT_THAT(send(1), Each(StatusIs(StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr("rank 1"), HasSubstr("w F32"), HasSubstr("lies elsewhere")))));
  moving[0].shards[0].offset = before;
  for (const auto& report : send(2)) EXPECT_THAT(report, IsOk());
  // Other memory, with other strides, is fine.
  std::vector<float> columns(445 * 70);
  for (std::size_t i = 0; i < 445; ++i)
    for (std::size_t j = 0; j < 70; ++j) columns[j * 445 + i] = value(1, 0, (455 + i) * 70 + j);
  moving[0].shards[0].data = columns.data();
  moving[0].shards[0].strides = {1, 445};
  for (const auto& report : send(3)) EXPECT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

}  // namespace
}  // namespace bascule::test
