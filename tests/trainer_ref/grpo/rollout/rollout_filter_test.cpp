#include <bascule/trainer_ref/grpo/rollout/rollout_filter.h>

#include <gmock/gmock.h>

#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Rollout rollout(std::vector<std::uint64_t> versions, std::uint64_t epoch = 7, std::string finish_reason = "stop") {
  Rollout made{
      .token_ids = {}, .log_probs = {}, .epochs = {}, .versions = std::move(versions), .finish_reason = {}, .text = {}};
  made.token_ids.resize(made.versions.size(), 1);
  made.epochs.resize(made.versions.size(), epoch);
  made.finish_reason = std::move(finish_reason);
  return made;
}

PublishedVersions published(std::initializer_list<std::uint64_t> versions) {
  PublishedVersions published;
  for (const std::uint64_t version : versions) published.add(7, version);
  return published;
}

TEST(PublishedVersions, AreCountedByThoseThatFollow) {
  const PublishedVersions versions = published({3, 5, 6});
  EXPECT_EQ(versions.newest(), 6);
  EXPECT_EQ(versions.behind(6), 0);
  EXPECT_EQ(versions.behind(3), 2);
  EXPECT_TRUE(versions.has(7, 5));
  EXPECT_FALSE(versions.has(7, 4)) << "aborted, or another's";
  EXPECT_FALSE(versions.has(8, 5));
}

TEST(FilterRollouts, KeepsWholeFreshCompletionsOfThisRun) {
  std::vector<Generation> generations(2);
  generations[0].rollouts = {rollout({6}), rollout({3, 6}), rollout({6}, 7, "abort"), rollout({})};
  generations[1].engine = 4;
  generations[1].rollouts = {rollout({5, 6}), rollout({6}, 8), rollout({4}), rollout({0}, 0)};
  const FilterResult result = filter_rollouts(generations, published({3, 5, 6}), 1);
  EXPECT_EQ(result.kept, 2);
  EXPECT_EQ(result.cut, 2);
  EXPECT_EQ(result.stale, 1);
  EXPECT_EQ(result.foreign, 3);
  EXPECT_THAT(result.by, ElementsAre(Pair(4, "version 6 of epoch 8")));
  EXPECT_NEAR(result.staleness_mean, 1.0 / 3, 1e-12) << "0, 1, 0";
  EXPECT_THAT(result.lags, ElementsAre(1, 1)) << "by the oldest token of each";
  EXPECT_EQ(generations[0].rollouts.size(), 1);
  EXPECT_EQ(generations[1].rollouts.size(), 1);
}

class RolloutFilterTest : public ::testing::Test {
 protected:
  // Versions 1, 2 and 3 of epoch 7.
  absl::StatusOr<FilterResult> apply(double min_batch, std::vector<Rollout> rollouts) {
    RolloutFilter filter({.max_staleness = 1, .min_batch = min_batch, .log = [this](std::string_view line) {
                            log_.emplace_back(line);
                          }});
    for (const std::uint64_t version : {1, 2, 3}) filter.published(7, version);
    EXPECT_EQ(filter.versions().newest(), 3);
    generations_ = std::vector<Generation>(1);
    generations_[0].rollouts = std::move(rollouts);
    const FilterResult result = filter.apply({"http://a"}, generations_);
    BASCULE_TRY(filter.check(/*step=*/9, /*asked=*/4, result));
    return result;
  }

  std::vector<Generation> generations_;
  std::vector<std::string> log_;
};

TEST_F(RolloutFilterTest, KeepsWhatIsFreshEnoughAndCountsTheRest) {
  const auto result = apply(0.5, {rollout({3}), rollout({2}), rollout({1})});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->kept, 2);
  EXPECT_EQ(result->stale, 1);
  EXPECT_EQ(result->staleness_mean, 0.5);
  EXPECT_EQ(generations_[0].rollouts.size(), 2);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(RolloutFilterTest, AStepWithTooFewCompletionsSaysWhatBecameOfTheOthers) {
  EXPECT_THAT(
      apply(0.75, {rollout({3}), rollout({1}), rollout({3}, 8)}),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("step 9: 1 of 4 completions are left, fewer than --min-batch=0.75 of them: 1 "),
                     HasSubstr("--max-staleness=1 behind, 1 are of another trainer's versions, and 1 were lost"))));
  EXPECT_THAT(log_, ElementsAre(HasSubstr("engine http://a answers with version 3 of epoch 8")));
  EXPECT_THAT(apply(0, {}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("0 of 4"))) << "at least one is needed";
}

}  // namespace
}  // namespace bascule::ref
