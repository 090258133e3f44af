// Several ranks send one version without a gather, and engines see ordinary slots.
#include "sender/ranks/ranks_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "absl/time/clock.h"
#include <bascule/receiver/status.h>
#include <bascule/receiver/status_query.h>
#include <bascule/transport/endpoint.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

// w is cut by rows over two ranks, u by columns; both hold b, and one holds c.
class TwoRanks : public RanksFixture, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    use_scheme(GetParam());
    make_ranks(2, {{"w", DType::kF32, {900, 70}},
                   {"u", DType::kF32, {400, 80}},
                   {"b", DType::kF32, {33}},
                   {"c", DType::kF32, {20}}});
    boxes_[0].add(0, {0, 0}, {455, 70});
    boxes_[1].add(0, {455, 0}, {445, 70});
    boxes_[0].add(1, {0, 0}, {400, 30});
    boxes_[1].add(1, {0, 30}, {400, 50});
    for (HeldBoxes& held : boxes_) held.add(2, {0}, {33});
    boxes_[1].add(3, {0}, {20});
    fill(1);
  }
};

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

TEST_P(TwoRanks, AHoleIsNamedOnAllRanks) {
  boxes_[1].tensors[0].shards[0].offset[0] = 454;
  EXPECT_THAT(start(), Each(StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("w "), HasSubstr("454")))));
}

TEST_P(TwoRanks, ShardsThatCannotBeSentAreNamedOnAllRanks) {
  for (std::size_t wrong = 0; wrong < 2; ++wrong) {
    const void* const before = std::exchange(boxes_[wrong].tensors[0].shards[0].data, nullptr);
    for (const absl::Status& status : start()) EXPECT_THAT(status.ToString(), HasSubstr("w F32 [900, 70] has no data"));
    boxes_[wrong].tensors[0].shards[0].data = before;
  }
}

TEST_P(TwoRanks, OtherTensorsAreNamedOnAllRanks) {
  boxes_[1].tensors[1].spec.name = "v";
  EXPECT_THAT(start(), Each(StatusIs(StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr("is u F32 [400, 80] on rank 0"), HasSubstr("v F32")))));
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

TEST_P(TwoRanks, WhoIsNotARankIsRefused) {
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

TEST_P(TwoRanks, ARankOfASenderWithoutRanksIsRefused) {
  absl::StatusOr<Sender> alone = listen(0, 1), other = listen(1, 2);
  ASSERT_THAT(alone, IsOk());
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT(other->register_shards(source(boxes_[1]), "", patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("joins a sender without ranks")));
}

TEST_P(TwoRanks, WhoDoesNotComeIsNamed) {
  absl::StatusOr<Sender> first = listen(0, 2);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(first->register_shards(source(boxes_[0]), "", absl::Milliseconds(50)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("have not joined: 1")));
}

TEST_P(TwoRanks, ARankNamesRank0IfItDoesNotCome) {
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

class ManyRanks : public RanksFixture {};
TEST_F(ManyRanks, SendManyTensors) {
  constexpr std::size_t kRanks = 16, kTensors = 400;
  std::vector<TensorSpec> specs;
  for (std::size_t t = 0; t < kTensors; ++t) specs.push_back({cat("t", t), DType::kF32, {33, 5}});
  make_ranks(kRanks, specs);
  for (std::size_t t = 0; t < kTensors; ++t)
    for (std::int64_t rank = 0; rank < std::int64_t{kRanks}; ++rank) {  // some shards are empty
      const std::int64_t begin = std::min<std::int64_t>(33, 3 * rank), end = std::min<std::int64_t>(33, begin + 3);
      boxes_[static_cast<std::size_t>(rank)].add(t, {begin, 0}, {end - begin, 5});
    }
  fill(1);
  start_well("?digest=always");
  for (const auto& report : send(1)) ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

TEST_F(ManyRanks, SendMoreThanAMillionRowsCutByColumns) {
  constexpr std::int64_t kRows = (std::int64_t{1} << 20) + 100;
  make_ranks(2, {{"w", DType::kF32, {kRows, 2}}});
  for (std::int64_t rank = 0; rank < 2; ++rank) boxes_[static_cast<std::size_t>(rank)].add(0, {0, rank}, {kRows, 1});
  fill(1);
  start_well();
  for (const auto& report : send(1)) ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(serves(1));
}

// Cuts a dimension into `parts`, some of them empty.
Shape cuts(std::int64_t size, int parts, std::mt19937& random) {
  Shape at{0, size};
  for (int i = 1; i < parts; ++i) at.push_back(std::uniform_int_distribution<std::int64_t>(0, size)(random));
  std::ranges::sort(at);
  return at;
}

class RandomRanks : public RanksFixture, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomRanks, testing::Range(0, 80));
TEST_P(RandomRanks, EqualAGather) {
  use_scheme(GetParam() % 2 == 0 ? "shm" : "regions");
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  const auto ranks = static_cast<std::size_t>(pick(1, 5));
  std::vector<TensorSpec> specs;
  for (std::int64_t t = 0, count = pick(1, 6); t < count; ++t) {
    Shape shape;
    for (std::int64_t d = 0, dimensions = pick(0, 3); d < dimensions; ++d) shape.push_back(pick(1, d == 0 ? 300 : 40));
    specs.push_back({cat("t", t), DType::kF32, shape});
  }
  make_ranks(ranks, specs);
  for (std::size_t t = 0; t < specs.size(); ++t) {  // a grid of boxes, dealt out with replicas
    std::vector<Shape> at;
    for (const std::int64_t size : specs[t].shape) at.push_back(cuts(size, static_cast<int>(pick(1, 4)), random));
    Shape cell(at.size(), 0);
    while (true) {
      Shape offset, shape;
      for (std::size_t d = 0; d < at.size(); ++d) {
        offset.push_back(at[d][static_cast<std::size_t>(cell[d])]);
        shape.push_back(at[d][static_cast<std::size_t>(cell[d]) + 1] - offset.back());
      }
      const auto owner = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(ranks) - 1));
      for (std::size_t rank = 0; rank < ranks; ++rank)
        if (rank == owner || pick(0, 5) == 0) boxes_[rank].add(t, offset, shape);
      std::size_t d = at.size();
      while (d-- > 0) {
        if (++cell[d] + 1 < static_cast<std::int64_t>(at[d].size())) break;
        cell[d] = 0;
      }
      if (d == std::size_t(-1)) break;
    }
  }
  start_well("?digest=always");
  for (int version = 1; version < 4; ++version) {
    fill(version);
    for (const auto& report : send(static_cast<std::uint64_t>(version))) ASSERT_THAT(report, IsOk());
    ASSERT_TRUE(serves(version));
  }
}

}  // namespace
}  // namespace bascule::test
