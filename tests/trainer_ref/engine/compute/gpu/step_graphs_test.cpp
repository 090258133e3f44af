// Graphs over slots that a sender fills: a slot's graphs stay right for every version in it.
#include <gmock/gmock.h>

#include "synced.h"

namespace bascule::ref {
namespace {

class StepGraphsTest : public SyncedTest {
 protected:
  void start_engine() {
    engine_ = std::make_unique<TestEngine>("qwen3", 64, SchedulerLimits{.max_batch = 8}, DType::kF32, synced());
    engine_->runner().commit();  // greets
  }
  void send() {
    ASSERT_TRUE(sender_->wait_for_workers(1, absl::Seconds(60)).ok());
    ASSERT_TRUE(sender_->send_async().ok());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!engine_->runner().commit().changed) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    const absl::StatusOr<SendReport> report = sender_->wait_async(absl::Seconds(60));
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->complete());
    engine_->pool().drop_prefixes();
  }
  void expect_the_trainers_words() {
    WeightMap weights;
    for (const auto& [name, tensor] : trained_) weights.emplace(name, tensor.cpu());
    const Decoder decoder = *Decoder::bind(config_, weights);
    std::mt19937 random(3);
    std::vector<TestRequest> requests;
    for (const std::size_t length : {3, 17, 40, 5, 9})  // ever fewer rows: four shapes and more
      requests.push_back({random_prompt(random, length, config_.vocab_size), static_cast<std::int64_t>(3 * length)});
    for (const auto& sequence : engine_->run(requests)) expect_agreement(decoder, *sequence, 1e-4);
  }

  std::unique_ptr<TestEngine> engine_;
};

TEST_F(StepGraphsTest, FlipsRecordNothingAnew) {
  start_sender();
  start_engine();
  std::uint64_t recorded = 0, replayed = 0;
  for (int version = 1; version <= 20; ++version) {
    train(version);
    send();
    expect_the_trainers_words();
    const GraphCounts counts = engine_->runner().graphs();
    if (version <= 4) {
      EXPECT_GT(counts.recorded, recorded)
          << "it reads this slot for the first or second time: a graph is recorded when its shape occurs again";
    } else {
      EXPECT_EQ(counts.recorded, recorded) << "version " << version;
      EXPECT_GT(counts.replayed, replayed);
    }
    recorded = counts.recorded;
    replayed = counts.replayed;
  }
}

TEST_F(StepGraphsTest, ARecordingThatFailsLeavesItsStepWholeAndIsTheLast) {
  struct NoMemory final : GraphRecorder {
    explicit NoMemory(int& asked) : asked_(asked) {}
    std::unique_ptr<Graph> record(const std::function<void()>&) override {
      ++asked_;
      throw std::bad_alloc();
    }
    int& asked_;
  };
  int asked = 0;
  start_sender();
  TestPlace where = synced();
  where.recorder = std::make_unique<NoMemory>(asked);
  engine_ = std::make_unique<TestEngine>("qwen3", 64, SchedulerLimits{.max_batch = 8}, DType::kF32, std::move(where));
  engine_->runner().commit();  // greets
  train(1);
  send();
  expect_the_trainers_words();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(engine_->runner().graphs().recorded, 0);
}

TEST_F(StepGraphsTest, SlotsOfAnotherEpochHaveGraphsOfTheirOwn) {
  start_sender();
  start_engine();
  train(1);
  send();
  expect_the_trainers_words();
  const std::uint64_t recorded = engine_->runner().graphs().recorded;
  sender_.reset();
  start_sender();
  train(2);
  send();
  expect_the_trainers_words();
  EXPECT_EQ(engine_->runner().graphs().recorded, 2 * recorded);
}

}  // namespace
}  // namespace bascule::ref
