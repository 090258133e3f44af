#include <bascule/trainer_ref/engine/schedule/scheduler.h>

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "simulation.h"

namespace bascule::ref {
namespace {

using ::testing::ElementsAreArray;

std::vector<std::int64_t> prompt_of(std::size_t length, std::int64_t first = 0) {
  std::vector<std::int64_t> tokens(length);
  std::iota(tokens.begin(), tokens.end(), first);
  for (std::int64_t& token : tokens) token %= kSimulatedVocabulary;
  return tokens;
}

struct Machine {
  Machine(std::size_t blocks, SchedulerLimits limits) : pool(blocks), scheduler(limits, pool), cache(blocks) {}

  Step step(Version version = 1, Scheduler::Admits admits = Scheduler::Admits::kAll) {
    Step step = scheduler.schedule(admits);
    std::size_t tokens = 0;
    for (const Row& row : step.rows) tokens += row.count;
    most_tokens = std::max(most_tokens, tokens);
    most_running = std::max(most_running, scheduler.running());
    std::vector<RowOutput> outputs = cache.run(step);
    for (auto& sequence : scheduler.complete(step, outputs, {7, version})) ended.push_back(std::move(sequence));
    return step;
  }
  void finish() {
    for (int steps = 0; scheduler.running() + scheduler.waiting() > 0; ++steps) {
      ASSERT_LT(steps, 100000) << "no end in sight";
      step();
    }
  }

  BlockPool pool;
  Scheduler scheduler;
  SimulatedCache cache;
  Scheduler::Sequences ended;
  std::size_t most_tokens = 0, most_running = 0;
};

TEST(Scheduler, ThoseOfAStepThatFailedRunAloneUntilTheyHaveSampled) {
  Machine machine(64, {.max_batch = 8, .max_step_tokens = 16});
  for (RequestId request = 0; request < 4; ++request)
    machine.scheduler.add(make_sequence(request, prompt_of(20, static_cast<std::int64_t>(request)), 6, 2));
  for (int i = 0; i < 6; ++i) machine.step();
  const Step failed = machine.scheduler.schedule();
  ASSERT_GT(failed.rows.size(), 1U);
  machine.cache.clear();
  machine.pool.drop_prefixes();
  machine.scheduler.put_back(failed);
  EXPECT_EQ(machine.scheduler.running(), 0U);
  EXPECT_EQ(machine.pool.available(), 64U);
  const RequestId removed = failed.rows[0].sequence->request;
  const auto left = static_cast<std::size_t>(std::ranges::count_if(failed.rows, [&](const Row& row) {
    return row.sequence->request != removed && row.sequence->suspect;  // rows of removed sequences point to nothing
  }));
  machine.scheduler.remove(removed);
  std::size_t sampled = 0;
  while (sampled < left) {
    const Step alone = machine.step();
    ASSERT_EQ(alone.rows.size(), 1U);
    sampled += alone.rows[0].begin + alone.rows[0].count >= 20 ? 1 : 0;
  }
  EXPECT_GT(machine.step().rows.size(), 1U) << "together again";
  machine.finish();
  EXPECT_EQ(machine.ended.size(), 6U);
  for (const auto& sequence : machine.ended)
    EXPECT_THAT(sequence->completion(),
                ElementsAreArray(expected_completion(prompt_of(20, static_cast<std::int64_t>(sequence->request)),
                                                     sequence->choice, 6)));
  EXPECT_EQ(machine.pool.available(), 64U);
}

TEST(Scheduler, ComputesAPromptOnceAndThenATokenAStep) {
  Machine machine(8, {});
  machine.scheduler.add(make_sequence(1, prompt_of(20), 3));
  EXPECT_EQ(machine.step().rows[0].count, 20U);
  EXPECT_EQ(machine.step().rows[0].count, 1U);
  EXPECT_TRUE(machine.ended.empty());
  machine.step();
  ASSERT_EQ(machine.ended.size(), 1U);
  EXPECT_THAT(machine.ended[0]->completion(), ElementsAreArray(expected_completion(prompt_of(20), 0, 3)));
  EXPECT_EQ(machine.ended[0]->finish, FinishReason::kLength);
  EXPECT_EQ(machine.pool.available(), 8U);
  EXPECT_TRUE(machine.step().empty());
}

TEST(Scheduler, SequencesJoinAndLeaveARunningBatch) {
  Machine machine(8, {});
  machine.scheduler.add(make_sequence(1, prompt_of(5), 4));
  machine.step();
  machine.scheduler.add(make_sequence(2, prompt_of(7), 1));
  EXPECT_EQ(machine.step().rows.size(), 2U);
  ASSERT_EQ(machine.ended.size(), 1U);
  EXPECT_EQ(machine.ended[0]->request, 2U);
  EXPECT_EQ(machine.step().rows.size(), 1U);
}

TEST(Scheduler, EndsWithAStopToken) {
  Machine machine(8, {});
  auto sequence = make_sequence(1, prompt_of(5), 100);
  const std::vector<std::int64_t> expected = expected_completion(prompt_of(5), 0, 4);
  sequence->stop_token_ids = {expected.back()};
  machine.scheduler.add(std::move(sequence));
  machine.finish();
  EXPECT_EQ(machine.ended[0]->finish, FinishReason::kStop);
  EXPECT_THAT(machine.ended[0]->completion(), ElementsAreArray(expected));
}

TEST(Scheduler, SiblingsShareOneComputationOfThePrompt) {
  Machine machine(64, {});
  machine.scheduler.add(make_sequence(1, prompt_of(40), 20, 5));
  const Step first = machine.step();
  ASSERT_EQ(first.rows.size(), 1U);
  EXPECT_EQ(first.rows[0].count, 40U);
  const Step second = machine.step();
  EXPECT_EQ(second.rows.size(), 5U);
  EXPECT_EQ(second.copies.size(), 4U) << "the part-full block, once for each sibling";
  EXPECT_EQ(machine.pool.size() - machine.pool.available(), 2U + 5U) << "two full blocks shared, one each";
  machine.finish();
  ASSERT_EQ(machine.ended.size(), 5U);
  for (const auto& sequence : machine.ended)
    EXPECT_THAT(sequence->completion(), ElementsAreArray(expected_completion(prompt_of(40), sequence->choice, 20)));
  EXPECT_EQ(machine.pool.available(), 64U);
}

TEST(Scheduler, SiblingsMayEndWithTheirFirstToken) {
  Machine machine(4, {});
  machine.scheduler.add(make_sequence(1, prompt_of(3), 1, 4));
  machine.step();
  EXPECT_EQ(machine.ended.size(), 4U);
  EXPECT_EQ(machine.pool.available(), 4U);
}

TEST(Scheduler, ReusesThePrefixOfAnEarlierSequence) {
  Machine machine(16, {});
  machine.scheduler.add(make_sequence(1, prompt_of(40), 2));
  machine.finish();
  machine.scheduler.add(make_sequence(2, prompt_of(40), 2));
  EXPECT_EQ(machine.step().rows[0].begin, 32U);
  EXPECT_EQ(machine.scheduler.reused_tokens(), 32U);
  machine.finish();
  EXPECT_THAT(machine.ended[1]->completion(), ElementsAreArray(expected_completion(prompt_of(40), 0, 2)));
}

TEST(Scheduler, ComputesTheLastTokenEvenWhereAllBlocksAreKnown) {
  Machine machine(16, {});
  for (RequestId request : {1, 2}) {
    machine.scheduler.add(make_sequence(request, prompt_of(32), 2));
    machine.finish();
  }
  EXPECT_EQ(machine.scheduler.reused_tokens(), 16U);
}

TEST(Scheduler, ReusesNothingOfOtherWeights) {
  Machine machine(16, {});
  machine.scheduler.add(make_sequence(1, prompt_of(40), 30));
  machine.step();
  machine.pool.drop_prefixes();  // a flip, while it runs
  machine.finish();
  machine.scheduler.add(make_sequence(2, prompt_of(40), 2));
  EXPECT_EQ(machine.step().rows[0].begin, 0U);
  EXPECT_EQ(machine.scheduler.reused_tokens(), 0U);
}

TEST(Scheduler, ComputesALongPromptInPiecesBesideThoseThatGenerate) {
  Machine machine(64, {.max_batch = 8, .max_step_tokens = 16});
  machine.scheduler.add(make_sequence(1, prompt_of(3), 30));
  machine.step();
  machine.scheduler.add(make_sequence(2, prompt_of(100), 1));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(machine.step().rows.size(), 2U) << "the short one has a token every step";
  machine.finish();
  EXPECT_EQ(machine.most_tokens, 16U);
}

TEST(Scheduler, RunsAtMostMaxBatchWithSiblingsCounted) {
  Machine machine(64, {.max_batch = 4, .max_step_tokens = 64});
  for (RequestId request = 1; request <= 3; ++request)
    machine.scheduler.add(make_sequence(request, prompt_of(3), 5, 3));
  machine.finish();
  EXPECT_EQ(machine.ended.size(), 9U);
  EXPECT_LE(machine.most_running, 4U);
}

TEST(Scheduler, PreemptsTheYoungestWhenTheCacheIsFull) {
  Machine machine(4, {});
  machine.scheduler.add(make_sequence(1, prompt_of(16), 40));
  machine.scheduler.add(make_sequence(2, prompt_of(16, 50), 40));
  machine.finish();
  EXPECT_GT(machine.scheduler.preemptions(), 0U);
  ASSERT_EQ(machine.ended.size(), 2U);
  EXPECT_EQ(machine.ended[0]->request, 1U) << "the older one was not put back";
  EXPECT_THAT(machine.ended[0]->completion(), ElementsAreArray(expected_completion(prompt_of(16), 0, 40)));
  EXPECT_THAT(machine.ended[1]->completion(), ElementsAreArray(expected_completion(prompt_of(16, 50), 0, 40)));
}

// Two sequences of 16 + 60 tokens in six blocks, until the older one needs a fourth block.
void preempt_one(Machine& machine) {
  machine.scheduler.add(make_sequence(1, prompt_of(16), 60));
  machine.scheduler.add(make_sequence(2, prompt_of(16, 50), 60));
  while (machine.scheduler.preemptions() == 0) machine.step();
  EXPECT_EQ(machine.scheduler.running(), 1U);
  machine.scheduler.remove(1);
}

TEST(Scheduler, APreemptedSequenceFindsWhatItsPromptAndItsOwnTokensLeftInTheCache) {
  Machine machine(6, {});
  preempt_one(machine);
  EXPECT_EQ(machine.step().rows.at(0).begin, 32U) << "the older sequence took the last of its three blocks";
  EXPECT_EQ(machine.scheduler.reused_tokens(), 32U);
  machine.finish();
  EXPECT_THAT(machine.ended.at(0)->completion(), ElementsAreArray(expected_completion(prompt_of(16, 50), 0, 60)));
}

TEST(Scheduler, APreemptedSequenceFindsNothingOfOtherWeights) {
  Machine machine(6, {});
  preempt_one(machine);
  machine.pool.drop_prefixes();
  EXPECT_EQ(machine.step().rows.at(0).begin, 0U);
  machine.finish();
  EXPECT_THAT(machine.ended.at(0)->completion(), ElementsAreArray(expected_completion(prompt_of(16, 50), 0, 60)));
}

TEST(Scheduler, AdmitsNoneThatWouldSoonHaveToLeave) {
  Machine machine(5, {});
  for (RequestId request = 1; request <= 4; ++request)  // prompts of one block, which take another in their first steps
    machine.scheduler.add(make_sequence(request, prompt_of(15, static_cast<std::int64_t>(20 * request)), 16));
  EXPECT_EQ(machine.step().rows.size(), 2U);
  machine.finish();
  EXPECT_EQ(machine.scheduler.preemptions(), 0U);
  EXPECT_EQ(machine.ended.size(), 4U);
}

TEST(Scheduler, ASequenceNeedsNoRoomBeyondItsLastToken) {
  Machine machine(4, {});
  for (RequestId request = 1; request <= 4; ++request)
    machine.scheduler.add(make_sequence(request, prompt_of(15, static_cast<std::int64_t>(20 * request)), 2));
  EXPECT_EQ(machine.step().rows.size(), 4U);
}

TEST(Scheduler, WhereOnlyTheBegunAreAdmittedThePreemptedAreAndTheNewOnesWait) {
  Machine machine(6, {});
  machine.scheduler.add(make_sequence(1, prompt_of(16), 60));
  machine.scheduler.add(make_sequence(2, prompt_of(16, 50), 60));
  while (machine.scheduler.preemptions() == 0) machine.step();
  machine.scheduler.add(make_sequence(3, prompt_of(3), 5));
  while (machine.scheduler.has_begun()) machine.step(1, Scheduler::Admits::kBegun);
  EXPECT_EQ(machine.ended.size(), 2U);
  EXPECT_EQ(machine.scheduler.waiting(), 1U);
  EXPECT_TRUE(machine.scheduler.schedule(Scheduler::Admits::kBegun).empty());
  machine.finish();
  EXPECT_EQ(machine.ended.size(), 3U);
}

TEST(Scheduler, RemovesARequestWhereverItIs) {
  Machine machine(4, {.max_batch = 4, .max_step_tokens = 64});
  machine.scheduler.add(make_sequence(1, prompt_of(16), 40));
  machine.scheduler.add(make_sequence(2, prompt_of(16), 40, 3));
  machine.scheduler.add(make_sequence(3, prompt_of(16), 40, 2));
  machine.step();
  EXPECT_EQ(machine.scheduler.remove(2).size(), 3U);
  EXPECT_EQ(machine.scheduler.remove(3).size(), 2U);
  EXPECT_EQ(machine.scheduler.remove(1).size(), 1U);
  EXPECT_EQ(machine.pool.available(), 4U);
  EXPECT_TRUE(machine.scheduler.schedule().empty());
}

TEST(Scheduler, EachTokenCarriesItsVersion) {
  Machine machine(4, {});
  machine.scheduler.add(make_sequence(1, prompt_of(3), 3));
  for (const Version version : {4, 4, 5}) machine.step(version);
  EXPECT_THAT(machine.ended.at(0)->versions, ::testing::ElementsAre(4, 4, 5));
  EXPECT_THAT(machine.ended.at(0)->epochs, ::testing::ElementsAre(7, 7, 7));
}

// Many requests of all sizes, cancellations and flips in a cache that is far too small: no sequence reads another's
// tokens (the simulation checks), each gets what it would get alone, and no block is lost.
TEST(Scheduler, SurvivesAnyMixture) {
  std::mt19937 random(7);
  const auto pick = [&random](std::size_t from, std::size_t to) {
    return std::uniform_int_distribution<std::size_t>(from, to)(random);
  };
  for (int round = 0; round < 30; ++round) {
    Machine machine(pick(8, 20), {.max_batch = 8, .max_step_tokens = pick(8, 40)});
    std::map<RequestId, std::pair<std::vector<std::int64_t>, std::int64_t>> asked;
    std::size_t owed = 0;
    for (RequestId request = 1; request <= 40; ++request) {
      const std::size_t length = pick(1, 70);
      const auto max_tokens = static_cast<std::int64_t>(pick(1, 50));
      const int n = static_cast<int>(pick(1, 4));
      asked[request] = {prompt_of(length, static_cast<std::int64_t>(pick(0, 2))), max_tokens};
      machine.scheduler.add(make_sequence(request, asked[request].first, max_tokens, n));
      owed += static_cast<std::size_t>(n);
      for (std::size_t steps = pick(0, 3); steps-- > 0;) machine.step();
      if (pick(0, 9) == 0) machine.pool.drop_prefixes();
      if (pick(0, 9) == 0) {
        const RequestId victim = pick(1, request);
        owed -= machine.scheduler.remove(victim).size();
      }
    }
    machine.finish();
    EXPECT_EQ(machine.ended.size(), owed);
    for (const auto& sequence : machine.ended) {
      const auto& [prompt, max_tokens] = asked[sequence->request];
      EXPECT_THAT(sequence->completion(), ElementsAreArray(expected_completion(prompt, sequence->choice, max_tokens)));
    }
    EXPECT_EQ(machine.pool.available(), machine.pool.size());
    if (HasFailure()) FAIL() << "in round " << round;
  }
}

TEST(Scheduler, APromptsScoresAreWholeWhateverTheCacheHeldAndHoweverOftenItWasPreempted) {
  Machine machine(12, {.max_batch = 8, .max_step_tokens = 16});
  machine.scheduler.add(make_sequence(0, prompt_of(60), 2));
  machine.finish();  // the prefix can be found now
  for (RequestId request = 1; request < 4; ++request) {
    auto sequence = make_sequence(request, prompt_of(60), request == 3 ? 0 : 40, 2);
    sequence->prompt_scores = std::make_shared<PromptScores>();
    sequence->siblings.front()->prompt_scores = sequence->prompt_scores;
    machine.scheduler.add(std::move(sequence));
  }
  machine.finish();
  EXPECT_GT(machine.scheduler.preemptions(), 0U);
  for (const auto& sequence : machine.ended) {
    if (sequence->request == 0) continue;
    const std::vector<Sample>& scores = sequence->prompt_scores->of;
    ASSERT_EQ(scores.size(), 59U) << "request " << sequence->request;
    for (std::size_t p = 0; p < scores.size(); ++p) {
      EXPECT_EQ(scores[p].token, sequence->tokens[p + 1]);
      EXPECT_EQ(scores[p].logprob, -1.0 - static_cast<double>(p));
    }
    EXPECT_EQ(sequence->generated(), sequence->request == 3 ? 0U : 40U);
  }
}

TEST(Scheduler, ATextThatEndsEndsItsSequenceAlone) {
  Machine machine(32, {.max_batch = 8, .max_step_tokens = 64});
  auto sequence = make_sequence(0, prompt_of(10), 30, 2);
  sequence->text_end = [seen = 0](std::int64_t) mutable { return ++seen == 7; };
  machine.scheduler.add(std::move(sequence));
  machine.finish();
  ASSERT_EQ(machine.ended.size(), 2U);
  EXPECT_EQ(machine.ended[0]->generated(), 7U);
  EXPECT_EQ(machine.ended[0]->finish, FinishReason::kStop);
  EXPECT_EQ(machine.ended[1]->generated(), 30U);
}

}  // namespace
}  // namespace bascule::ref
