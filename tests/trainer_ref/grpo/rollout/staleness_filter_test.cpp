#include <bascule/trainer_ref/grpo/rollout/staleness_filter.h>

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

Rollout rollout(std::uint64_t version, std::uint64_t epoch = 7) {
  Rollout made;
  made.token_ids = {1};
  made.versions = {version};
  made.epochs = {epoch};
  made.finish_reason = "stop";
  return made;
}

class StalenessFilterTest : public ::testing::Test {
 protected:
  // Versions 1, 2 and 3 of epoch 7.
  absl::StatusOr<Sifted> apply(double min_batch, std::vector<Rollout> rollouts) {
    StalenessFilter filter({.max_staleness = 1, .min_batch = min_batch, .log = [this](std::string_view line) {
                              log_.emplace_back(line);
                            }});
    for (const std::uint64_t version : {1, 2, 3}) filter.published(7, version);
    EXPECT_EQ(filter.versions().newest(), 3);
    generations_ = std::vector<Generation>(1);
    generations_[0].rollouts = std::move(rollouts);
    const Sifted sifted = filter.apply({"http://a"}, generations_);
    BASCULE_TRY(filter.check(/*step=*/9, /*asked=*/4, sifted));
    return sifted;
  }

  std::vector<Generation> generations_;
  std::vector<std::string> log_;
};

TEST_F(StalenessFilterTest, KeepsWhatIsFreshEnoughAndCountsTheRest) {
  const auto sifted = apply(0.5, {rollout(3), rollout(2), rollout(1)});
  ASSERT_THAT(sifted, IsOk());
  EXPECT_EQ(sifted->kept, 2);
  EXPECT_EQ(sifted->stale, 1);
  EXPECT_EQ(sifted->staleness_mean, 0.5);
  EXPECT_EQ(generations_[0].rollouts.size(), 2);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(StalenessFilterTest, AStepWithTooFewCompletionsSaysWhatBecameOfTheOthers) {
  EXPECT_THAT(apply(0.75, {rollout(3), rollout(1), rollout(3, 8)}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("step 9: 1 of 4 completions are left, fewer than --min-batch=0.75 of them: 1 "),
                             HasSubstr("--max-staleness=1 behind, 1 of another trainer's, and 1 were lost"))));
  EXPECT_THAT(log_, ElementsAre(HasSubstr("engine http://a answers with version 3 of epoch 8")));
  EXPECT_THAT(apply(0, {}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("0 of 4"))) << "one is needed at least";
}

}  // namespace
}  // namespace bascule::ref
