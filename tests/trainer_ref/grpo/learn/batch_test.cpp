#include <bascule/trainer_ref/grpo/learn/batch.h>

#include "support.h"

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;

template <typename T>
std::vector<T> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), tensor.data_ptr<T>() + tensor.numel()};
}

TEST(Batch, PacksRowsWithoutPadding) {
  Sampled sampled;
  sampled.rollouts[0].log_probs = {-0.5f, -0.25f};
  const std::vector<TrainingRow> rows = sampled.rows();
  const Batch batch = make_batch(std::span(rows).subspan(0, 3));
  EXPECT_THAT(values<std::int64_t>(batch.token_ids), ElementsAre(1, 2, 3, 5, 6, 1, 2, 3, 7, 8, 9, 10, 4, 2));
  EXPECT_THAT(values<std::int64_t>(batch.positions), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 0, 1));
  EXPECT_THAT(batch.rows.starts, ElementsAre(0, 5, 12, 14));
  EXPECT_THAT(values<std::int32_t>(batch.rows.device_starts), ElementsAre(0, 5, 12, 14));
  EXPECT_EQ(batch.rows.longest, 7);
  EXPECT_THAT(values<std::int64_t>(batch.sources), ElementsAre(2, 3, 7, 8, 9, 10, 12))
      << "the token that precedes each target";
  EXPECT_THAT(values<std::int64_t>(batch.targets), ElementsAre(5, 6, 7, 8, 9, 10, 2));
  EXPECT_THAT(values<std::int64_t>(batch.row_of), ElementsAre(0, 0, 1, 1, 1, 1, 2));
  EXPECT_THAT(values<float>(batch.completion_tokens), ElementsAre(2, 4, 1));
  EXPECT_THAT(values<float>(batch.behaviour_log_probs), ElementsAre(-0.5, -0.25, -2.4f, -2.4f, -2.4f, -2.4f, -2.4f));
  EXPECT_THAT(values<float>(batch.advantages), ElementsAre(1, -0.5, 0.25));
}

TEST(Batch, TokensThatAreNotLearnedAreReadAndPredictOthers) {
  Sampled sampled;
  sampled.rollouts[1].learned = {true, false, false, true};
  const std::vector<TrainingRow> rows = sampled.rows();
  const Batch batch = make_batch(std::span(rows).subspan(0, 2));
  EXPECT_THAT(values<std::int64_t>(batch.token_ids), ElementsAre(1, 2, 3, 5, 6, 1, 2, 3, 7, 8, 9, 10));
  EXPECT_THAT(values<std::int64_t>(batch.sources), ElementsAre(2, 3, 7, 10));
  EXPECT_THAT(values<std::int64_t>(batch.targets), ElementsAre(5, 6, 7, 10));
  EXPECT_THAT(values<std::int64_t>(batch.row_of), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(values<float>(batch.completion_tokens), ElementsAre(2, 2));
  EXPECT_EQ(batch.behaviour_log_probs.numel(), 4);
}

TEST(Batch, MicroBatchesEndByRowsOrByTokens) {
  const Sampled sampled;  // rows of 5, 7, 2 and 3 tokens
  const std::vector<TrainingRow> rows = sampled.rows();
  const auto sizes = [&](std::size_t most_rows, std::int64_t most_tokens) {
    std::vector<std::size_t> found;
    const TrainingRow* next = rows.data();
    for (const auto& part : micro_batches_of(rows, most_rows, most_tokens)) {
      EXPECT_EQ(part.data(), next) << "in order, and none is left out";
      next += part.size();
      found.push_back(part.size());
    }
    return found;
  };
  EXPECT_THAT(sizes(3, 0), ElementsAre(3, 1));
  EXPECT_THAT(sizes(64, 12), ElementsAre(2, 2));
  EXPECT_THAT(sizes(64, 9), ElementsAre(1, 2, 1));
  EXPECT_THAT(sizes(64, 4), ElementsAre(1, 1, 1, 1)) << "longer ones are alone";
  EXPECT_THAT(sizes(1, 12), ElementsAre(1, 1, 1, 1));
}

TEST(Batch, AnswersWithoutLogProbsCountAsCertain) {
  Sampled sampled;
  sampled.rollouts[0].log_probs.clear();
  const std::vector<TrainingRow> rows = sampled.rows();
  EXPECT_THAT(values<float>(make_batch(std::span(rows).subspan(0, 1)).behaviour_log_probs), ElementsAre(0, 0));
}

}  // namespace
}  // namespace bascule::ref
