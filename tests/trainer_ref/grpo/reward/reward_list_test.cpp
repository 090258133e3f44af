#include <bascule/trainer_ref/grpo/reward/reward_list.h>

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "finished_rollout.h"
#include "support/status.h"

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// The rewards of one group in a run with `list`.
struct ListScores {
  std::vector<std::optional<double>> rewards;
  RewardMeans means;
};
ListScores scored(const std::string& list, const Problem& problem, std::vector<Rollout> rollouts) {
  const auto specs = parse_rewards(list);
  EXPECT_THAT(specs, IsOk());
  const auto rewards = make_rewards(*specs, {});
  EXPECT_THAT(rewards, IsOk());
  std::vector<CompletionGroup> groups(1);
  groups[0].problem = &problem;
  groups[0].rollouts = std::move(rollouts);
  const auto means = score_groups(*rewards, groups);
  EXPECT_THAT(means, IsOk());
  ListScores outcome{.rewards = {}, .means = *means};
  for (const Rollout& each : groups[0].rollouts) outcome.rewards.push_back(each.reward);
  return outcome;
}

std::string refusal(const std::string& list) { return std::string(parse_rewards(list).status().message()); }

TEST(RewardList, SeveralAreWeightedAndNaNIsLeftOut) {
  const Problem plain{.prompt = "?", .answer = "73"},
      bounded{.prompt = "?", .answer = "73", .columns = {{"max_bytes", 2}}};
  const std::string list = "exact_match, finished=0.25,within_length=8";
  EXPECT_THAT(scored(list, plain, {finished_rollout("73"), finished_rollout("99", "length")}).rewards,
              ElementsAre(1.25, 0));
  EXPECT_THAT(scored(list, bounded, {finished_rollout("99", "length")}).rewards, ElementsAre(8));
  EXPECT_THAT(scored("within_length", plain, {finished_rollout("99")}).rewards, ElementsAre(std::nullopt));
}

// The sum is over the rewards that apply to each completion.
TEST(RewardList, ACompletionIsUnscoredIfEveryRewardAbstains) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<WeightedReward> rewards;
  const auto add = [&](const char* name, double weight, RewardFunction function) {
    rewards.push_back({.name = name, .weight = weight, .reward = reward_of(function)});
  };
  add("first", 2, [](const Problem&, const Rollout& rollout) { return rollout.text[0] == '-' ? kNone : 0.5; });
  add("second", -1, [](const Problem&, const Rollout& rollout) { return rollout.text[1] == '-' ? kNone : 3; });
  add("measured", 0, [](const Problem&, const Rollout&) { return 1.0; });
  const Problem problem{.prompt = "?"};
  std::vector<CompletionGroup> groups(1);
  groups[0].problem = &problem;
  for (const char* applies : {"++", "+-", "-+", "--"}) groups[0].rollouts.push_back(finished_rollout(applies));
  groups[0].rollouts[3].reward = 9;  // of an earlier call
  const auto means = score_groups(rewards, groups);
  ASSERT_THAT(means, IsOk());
  const std::vector<std::optional<double>> expected{2 * 0.5 - 3, 2 * 0.5, -3, std::nullopt};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(groups[0].rollouts[i].reward, expected[i]) << i;
  EXPECT_THAT(*means, ElementsAre(Pair("first", 0.5), Pair("second", 3), Pair("measured", 1)));
}

TEST(RewardList, HasTheMeanOfEachReward) {
  const Problem plain{.prompt = "?", .answer = "73"};
  const ListScores outcome = scored("exact_match=5,finished,within_length", plain,
                                    {finished_rollout("73"), finished_rollout("99"), finished_rollout("1", "length"),
                                     finished_rollout("2", "length")});
  ASSERT_EQ(outcome.means.size(), 3);
  EXPECT_EQ(outcome.means[0], (std::pair<std::string, double>("exact_match", 0.25))) << "without its weight";
  EXPECT_EQ(outcome.means[1], (std::pair<std::string, double>("finished", 0.5)));
  EXPECT_TRUE(std::isnan(outcome.means[2].second)) << "it does not apply";
}

TEST(RewardList, ReadsProgramsAndUrls) {
  const auto specs = parse_rewards("exec:./reward.py=0.5, exec:python3 tools/judge.py --level=2=-1 ,http://h:80/score");
  ASSERT_THAT(specs, IsOk());
  ASSERT_EQ(specs->size(), 3);
  EXPECT_EQ((*specs)[0].name, "exec:reward.py");
  EXPECT_EQ((*specs)[0].weight, 0.5);
  EXPECT_THAT((*specs)[0].command, ElementsAre("./reward.py"));
  EXPECT_EQ((*specs)[1].name, "exec:python3 judge.py --level=2");
  EXPECT_EQ((*specs)[1].weight, -1);
  EXPECT_THAT((*specs)[1].command, ElementsAre("python3", "tools/judge.py", "--level=2"));
  EXPECT_EQ((*specs)[2].name, "http://h:80/score");
  EXPECT_EQ((*specs)[2].url, "http://h:80/score");
  EXPECT_EQ((*specs)[2].weight, 1);
}

TEST(RewardList, ABackslashMakesACharacterPartOfAName) {
  const auto specs = parse_rewards(R"(exec:a\,b\=1/my\ reward.py=2,http://h/?kind\=1,exec:c\\d)");
  ASSERT_THAT(specs, IsOk());
  ASSERT_EQ(specs->size(), 3);
  EXPECT_THAT((*specs)[0].command, ElementsAre("a,b=1/my reward.py"));
  EXPECT_EQ((*specs)[0].weight, 2);
  EXPECT_EQ((*specs)[1].url, "http://h/?kind=1");
  EXPECT_THAT((*specs)[2].command, ElementsAre("c\\d"));
}

TEST(RewardList, ProgramsOfOneNameAreToldApart) {
  const auto specs = parse_rewards("exec:a/reward.py,exec:b/reward.py");
  ASSERT_THAT(specs, IsOk());
  EXPECT_EQ((*specs)[0].name, "exec:reward.py");
  EXPECT_EQ((*specs)[1].name, "exec:b/reward.py");
}

TEST(RewardList, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal("exact_mach"), HasSubstr("did you mean exact_match?"));
  EXPECT_THAT(refusal(""), HasSubstr("known: exact_match"));
  EXPECT_THAT(refusal("exact_match=lots"), HasSubstr("expected a number"));
  EXPECT_THAT(refusal("exact_match=nan"), HasSubstr("expected a number"));
  EXPECT_THAT(refusal("exact_match=-2e6"), HasSubstr("a number from -1e6 to 1e6"));
  EXPECT_THAT(refusal("exact_match,finished, exact_match=2"),
              HasSubstr("reward \"exact_match\" occurs twice; give each once"));
  EXPECT_THAT(refusal("exec:a.py,exec:a.py=2"), HasSubstr("reward \"exec:a.py\" occurs twice"));
  EXPECT_THAT(refusal("exec: =1"), HasSubstr("expected a program after exec:"));
  EXPECT_THAT(refusal("exec:a=b.py"), HasSubstr("after the last = (\\= is one that belongs to a name)"));
  EXPECT_THAT(refusal("http://h:x/"), HasSubstr("no port"));
}

TEST(RewardList, AProgramThatIsNotThereIsNamedBeforeAnythingIsScored) {
  const auto specs = parse_rewards("exec:/nowhere/reward.py");
  ASSERT_THAT(specs, IsOk());
  EXPECT_THAT(
      make_rewards(*specs, {}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("exec:reward.py: start /nowhere/reward.py: No such file or directory; give a program")));
}

TEST(RewardList, RewardsThatNeedAnswersAreRefusedWhereNoProblemHasOne) {
  const std::vector<Problem> without{{.prompt = "a"}, {.prompt = "b", .answer = " "}},
      with{{.prompt = "a"}, {.prompt = "b", .answer = "4"}};
  for (const std::string name : {"exact_match", "number_match", "math_match"}) {
    EXPECT_TRUE(check_answers(*parse_rewards("finished," + name), with).ok());
    EXPECT_THAT(std::string(check_answers(*parse_rewards("finished," + name), without).message()),
                AllOf(HasSubstr("reward " + name + " compares"), HasSubstr("--answer-column")));
  }
  EXPECT_TRUE(check_answers(*parse_rewards("finished,within_length,exec:./reward.py"), without).ok());
}

}  // namespace
}  // namespace bascule::ref
