// The engine's own thread on the GPU, flipping while it generates.
#include <gmock/gmock.h>

#include <atomic>
#include <set>

#include "synced.h"
#include <bascule/trainer_ref/engine/schedule/engine.h>

namespace bascule::ref {
namespace {

class FlipTest : public SyncedTest {
 protected:
  void TearDown() override {
    engine_.reset();
    SyncedTest::TearDown();
  }
  void start_engine() {
    constexpr std::size_t kBlocks = 256;
    engine_ = std::make_unique<Engine>(EngineOptions{.limits = {.max_batch = 8}, .blocks = kBlocks});
    TestPlace where = synced([engine = engine_.get()] { engine->wake(); });
    engine_->start(std::make_unique<TorchRunner>(config_,
                                                 RunnerOptions{.blocks = kBlocks,
                                                               .place = where.place,
                                                               .recorder = std::move(where.recorder),
                                                               .most_rows = 8,
                                                               .most_blocks = 16},
                                                 std::move(where.weights)));
  }
  // Sends another request whenever an answer comes.
  void keep_asking(std::int64_t prompt_token) {
    CompletionRequest request;
    request.prompts = {{prompt_token, 2, 3}};
    request.max_tokens = 240;
    const absl::StatusOr<RequestId> id =
        engine_->submit(std::move(request), [this, prompt_token](Completion completion) {
          EXPECT_TRUE(completion.status.ok()) << completion.status;
          for (const auto& choice : completion.choices) {
            EXPECT_EQ(choice->generated(), 240U);
            EXPECT_TRUE(std::is_sorted(choice->versions.begin(), choice->versions.end()));
            tokens_ += choice->generated();
          }
          if (!enough_) keep_asking(prompt_token);
        });
    EXPECT_TRUE(id.ok()) << id.status();
  }

  // The same with a penalty that lets no token come a second time: 60 of the model's 64 ones, none of them the
  // prompt's.
  void keep_asking_for_others(std::int64_t prompt_token) {
    CompletionRequest request;
    request.prompts = {{prompt_token, 62, 63}};
    request.max_tokens = 60;
    TokenBiases bias;
    for (std::int32_t token = 0; token < static_cast<std::int32_t>(config_.vocab_size); ++token)
      bias.push_back({token, 100});
    request.sampling.adjustments = {.repetition_penalty = 100, .bias = std::make_shared<const TokenBiases>(bias)};
    const absl::StatusOr<RequestId> id =
        engine_->submit(std::move(request), [this, prompt_token](Completion completion) {
          EXPECT_TRUE(completion.status.ok()) << completion.status;
          for (const auto& choice : completion.choices) {
            EXPECT_EQ(std::set<std::int64_t>(choice->tokens.begin(), choice->tokens.end()).size(), 63U);
            flips_within_ += choice->versions.front() == choice->versions.back() ? 0 : 1;
          }
          if (!enough_) keep_asking_for_others(prompt_token);
        });
    EXPECT_TRUE(id.ok()) << id.status();
  }

  // An ack comes from within the flip, a moment before the engine takes requests.
  void wait_for_first_flip() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (engine_->stats().flips == 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }

  std::unique_ptr<Engine> engine_;
  std::atomic<bool> enough_ = false;
  std::atomic<std::uint64_t> tokens_ = 0, flips_within_ = 0;
};

TEST_F(FlipTest, GeneratesThroughManyFlips) {
  constexpr int kFlips = 300, kShapes = 4 * 5;  // up to 8 rows, up to 16 blocks
  start_sender();
  start_engine();
  ASSERT_TRUE(sender_->wait_for_workers(1, absl::Seconds(60)).ok());
  std::vector<double> stalls;  // seconds
  double before = 0;
  for (int i = 0; i < kFlips; ++i) {
    train(i);
    const absl::StatusOr<SendReport> report = sender_->send();
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->complete());
    double stall = before;
    for (std::uint64_t flips = 0; flips <= static_cast<std::uint64_t>(i);) {  // the ack comes from within the flip
      const EngineStats stats = engine_->stats();
      flips = stats.flips;
      stall = stats.stall_seconds;
    }
    stalls.push_back(stall - before);
    before = stall;
    if (i == 0)
      for (std::int64_t token = 0; token < 6; ++token) keep_asking(token);
  }
  enough_ = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (engine_->stats().running > 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.flips, static_cast<std::uint64_t>(kFlips));
  EXPECT_LE(stats.graphs.recorded, 2U * kShapes) << "by two slots";
  EXPECT_GT(stats.graphs.replayed, stats.graphs.recorded);
  EXPECT_GT(tokens_, 0U);

  std::sort(stalls.begin() + 2, stalls.end());  // the first two slots are bound to the model
  const auto at = [&](double share) { return 1e6 * stalls[2 + static_cast<std::size_t>(share * (kFlips - 3))]; };
  std::printf("stall at a flip: p50 %.1f us, p90 %.1f us, p99 %.1f us, longest %.1f us; while %.0f tokens were made\n",
              at(0.5), at(0.9), at(0.99), at(1), static_cast<double>(stats.generated_tokens));
}

TEST_F(FlipTest, ThePenaltiesCountsOutliveFlips) {
  start_sender();
  start_engine();
  ASSERT_TRUE(sender_->wait_for_workers(1, absl::Seconds(60)).ok());
  for (int i = 0; i < 50; ++i) {
    train(i);
    const absl::StatusOr<SendReport> report = sender_->send();
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->complete());
    if (i > 0) continue;
    ASSERT_NO_FATAL_FAILURE(wait_for_first_flip());
    for (std::int64_t token = 0; token < 6; ++token) keep_asking_for_others(token);
  }
  enough_ = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (engine_->stats().running > 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_GT(flips_within_, 0U);
}

}  // namespace
}  // namespace bascule::ref
