#include <bascule/trainer_ref/grpo/learn/update.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support.h"
#include <bascule/trainer_ref/model/causal_attention.h>

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

WeightMap copy_of(const WeightMap& weights) {
  WeightMap copies;
  for (const auto& [name, tensor] : weights) copies[name] = tensor.detach().clone();
  return copies;
}

TEST(Policy, GivesACompletionTheSameProbabilityAloneAndInABatch) {
  const Sampled sampled;
  const Policy model = policy();
  const std::vector<TrainingRow> rows = sampled.rows();
  const Batch batch = make_batch(rows);
  const at::Tensor together = model.log_probs(batch, 0.7);
  ASSERT_EQ(together.size(0), 9);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const at::Tensor alone = model.log_probs(make_batch(std::span(rows).subspan(i, 1)), 0.7);
    const at::Tensor row = together.index({batch.row_of == static_cast<std::int64_t>(i)});
    ASSERT_EQ(row.sizes(), alone.sizes());
    EXPECT_LT((row - alone).abs().max().item<double>(), 1e-5) << "row " << i;
  }
}

TEST(Policy, LooksUpTheTokenAfterEachPlace) {
  const Sampled sampled;
  const Policy model = policy();
  const TrainingRow row = sampled.rows()[0];
  // The whole text through the decoder, by hand: the token at 2 predicts 5, the one at 3 predicts 6.
  const absl::StatusOr<Decoder> decoder = Decoder::bind(model.config(), model.weights());
  CausalAttention attention(pack_rows({5}));
  const at::Tensor logits =
      decoder->logits(decoder->forward(at::tensor({1, 2, 3, 5, 6}, at::kLong), at::arange(5), attention));
  const at::Tensor expected = (logits / 0.7).log_softmax(1);
  const at::Tensor found = model.log_probs(make_batch(std::span(&row, 1)), 0.7);
  EXPECT_NEAR(found[0].item<double>(), expected[2][5].item<double>(), 1e-5);
  EXPECT_NEAR(found[1].item<double>(), expected[3][6].item<double>(), 1e-5);
}

TEST(Update, IsTheSameInMicroBatchesOfAnySize) {
  const Sampled sampled;
  const Policy start = policy(), whole = policy(), parts = policy();
  UpdateOptions options{.loss = {.kind = LossKind::kDapo, .beta = 0.1}, .num_iterations = 3, .micro_batch = 4};
  // AdamW's first steps are nearly the gradient's sign, and do not show its norm.
  Optimizer one(whole.weights(), {.learning_rate = 1e-3}), other(parts.weights(), {.learning_rate = 1e-3});
  const UpdateStatistics a = update_policy(whole, &start, one, sampled.rows(), options);
  options.micro_batch = 1;
  const UpdateStatistics b = update_policy(parts, &start, other, sampled.rows(), options);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  EXPECT_NEAR(a.kl, b.kl, 1e-6);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5);
  EXPECT_GT(a.kl, 0) << "the later iterations have moved away from the reference";
  EXPECT_GT(distance(start, whole), 1e-4);
}

// Two mini-batches are two updates. The ratios of both are to the policy before the first.
TEST(Update, AMiniBatchHasAnOptimizerStepOfItsOwn) {
  const Sampled sampled;
  const std::vector<TrainingRow> rows = sampled.rows();
  const Policy start = policy(), parts = policy(), hand = policy();
  const OptimizerOptions rate{.learning_rate = 1e-2};
  Optimizer one(parts.weights(), rate), other(hand.weights(), rate);
  const UpdateOptions options{.num_iterations = 2, .mini_batches = 2, .micro_batch = 4};
  const UpdateStatistics update = update_policy(parts, nullptr, one, rows, options);
  EXPECT_EQ(update.updates, 4);
  EXPECT_EQ(one.steps(), 4);
  EXPECT_EQ(update.tokens, 2 * (5 + 7 + 2 + 3));

  for (int pass = 0; pass < 2; ++pass)
    for (const std::size_t first : {0, 2}) {
      const Batch batch = make_batch(std::span(rows).subspan(first, 2));
      other.zero_grad();
      const Loss loss = policy_loss({.log_probs = hand.log_probs(batch, 1),
                                     .old_log_probs = start.log_probs(batch, 1).detach(),
                                     .behaviour_log_probs = batch.behaviour_log_probs,
                                     .reference_log_probs = {},
                                     .advantages = batch.advantages,
                                     .completion_tokens = batch.completion_tokens,
                                     .row_of = batch.row_of},
                                    {.completions = 2}, options.loss);
      loss.value.backward();
      other.step();
    }
  EXPECT_LT(distance(parts, hand), 1e-6);
  EXPECT_GT(distance(start, hand), 1e-3);

  const UpdateOptions many{.mini_batches = 9};
  EXPECT_EQ(update_policy(parts, nullptr, one, rows, many).updates, 4) << "at most as many as completions";
}

TEST(Update, TellsHowItWeighedWhatEnginesSampled) {
  Sampled sampled;
  const Policy model = policy();
  Optimizer optimizer(model.weights(), {});
  for (Rollout& rollout : sampled.rollouts)
    std::fill(rollout.log_probs.begin(), rollout.log_probs.end(),
              -100.0f);  // far less likely than the policy finds them
  UpdateStatistics update = update_policy(model, nullptr, optimizer, sampled.rows(), {.loss = {.importance_cap = 3}});
  EXPECT_EQ(update.importance_mean, 3);
  EXPECT_EQ(update.importance_capped, 1);
  EXPECT_EQ(update.masked, 0);
  EXPECT_NEAR(update.entropy, std::log(11), 0.2) << "untrained weights choose among all eleven tokens";
  for (Rollout& rollout : sampled.rollouts) std::fill(rollout.log_probs.begin(), rollout.log_probs.end(), 0.0f);
  update = update_policy(model, nullptr, optimizer, sampled.rows(), {.loss = {.off_policy_mask = 0.5}});
  EXPECT_EQ(update.importance_capped, 0);
  EXPECT_LT(update.importance_mean, 1);
  EXPECT_EQ(update.masked, 0.5) << "the two completions that did worse";
}

TEST(Update, MakesRewardedCompletionsLikelier) {
  const Sampled sampled;
  const Policy model = policy();
  const std::vector<TrainingRow> rows = sampled.rows();
  const auto likeness = [&](std::size_t row) {
    return model.log_probs(make_batch(std::span(rows).subspan(row, 1)), 1).sum().item<double>();
  };
  const double gainer = likeness(0), loser = likeness(3);
  Optimizer optimizer(model.weights(), {.learning_rate = 1e-3});
  const UpdateStatistics update = update_policy(model, nullptr, optimizer, rows, {.micro_batch = 4});
  EXPECT_GT(likeness(0), gainer);
  EXPECT_LT(likeness(3), loser);
  EXPECT_TRUE(std::isnan(update.kl));
}

// AdamW would continue by its momentum if the gradient is 0.
TEST(Update, RowsWithoutAnyAdvantageChangeNothing) {
  Sampled sampled;
  const Policy model = policy();
  Optimizer optimizer(model.weights(), {.learning_rate = 1e-2, .weight_decay = 0.1});
  update_policy(model, nullptr, optimizer, sampled.rows(), {});
  const Policy before = *Policy::over(model.config(), copy_of(model.weights()), Policy::Gradients::kNone);
  for (Rollout& rollout : sampled.rollouts) rollout.advantage = 0;
  const UpdateStatistics flat = update_policy(model, nullptr, optimizer, sampled.rows(), {.micro_batch = 2});
  EXPECT_EQ(distance(model, before), 0);
  EXPECT_EQ(flat.updates, 0);
  EXPECT_EQ(flat.skipped, 0) << "nothing was wrong with it";
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_EQ(flat.loss, 0);
  EXPECT_GT(flat.entropy, 0) << "measured values are reported";

  sampled.rollouts[3].advantage = 1;  // of the second mini-batch
  const UpdateStatistics half = update_policy(model, nullptr, optimizer, sampled.rows(), {.mini_batches = 2});
  EXPECT_EQ(half.updates, 1);
  EXPECT_GT(distance(model, before), 0);
  const UpdateStatistics diverging =
      update_policy(model, &before, optimizer, Sampled().rows(), {.loss = {.beta = 0.1}});
  EXPECT_EQ(diverging.updates, 1) << "the divergence teaches";
}

TEST(Update, SkipsIterationsWhoseGradientsAreNotFiniteAndSaysHowMany) {
  Sampled sampled;
  const Policy start = policy(), model = policy();
  Optimizer optimizer(model.weights(), {.learning_rate = 1e-3});
  const UpdateOptions options{.num_iterations = 2, .micro_batch = 2};
  sampled.rollouts[3].advantage = std::numeric_limits<double>::quiet_NaN();
  const UpdateStatistics bad = update_policy(model, nullptr, optimizer, sampled.rows(), options);
  EXPECT_EQ(bad.skipped, 2);
  EXPECT_TRUE(std::isnan(bad.loss));
  EXPECT_EQ(distance(start, model), 0);
  EXPECT_TRUE(optimizer.moments().empty());

  sampled.rollouts[3].advantage = -1;
  const UpdateStatistics good = update_policy(model, nullptr, optimizer, sampled.rows(), options);
  EXPECT_EQ(good.skipped, 0);
  EXPECT_TRUE(std::isfinite(good.loss) && std::isfinite(good.grad_norm)) << "no earlier gradient is left";
  EXPECT_GT(distance(start, model), 1e-4);
}

// The first iteration goes so far that the second has no finite loss.
TEST(Update, MeansAreThoseOfTheIterationsThatChangedTheWeights) {
  const Sampled sampled;
  const Policy model = policy();
  Optimizer optimizer(model.weights(), {.learning_rate = 1e25});
  const UpdateStatistics update =
      update_policy(model, nullptr, optimizer, sampled.rows(), {.num_iterations = 2, .micro_batch = 4});
  EXPECT_EQ(update.skipped, 1);
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_TRUE(std::isfinite(update.loss) && std::isfinite(update.grad_norm) && std::isfinite(update.clip_fraction));
}

TEST_F(Saved, ARunGoesOnExactly) {
  const absl::StatusOr<ModelConfig> config = read_config(BASCULE_DEMO_MODEL);
  ASSERT_TRUE(config.ok()) << config.status();
  const Sampled sampled;
  const Policy straight = *random_policy(*config, 1);
  const OptimizerOptions rate{.learning_rate = 1e-3, .weight_decay = 0.1, .warmup_steps = 10};
  Optimizer optimizer(straight.weights(), rate);
  for (int i = 0; i < 2; ++i) update_policy(straight, nullptr, optimizer, sampled.rows(), {});
  const absl::Status saved = save_run(folder_ / "step_2", folder_, straight, optimizer,
                                      {.step = 2, .seed = 9, .optimizer_steps = optimizer.steps()});
  ASSERT_TRUE(saved.ok()) << saved;

  const absl::StatusOr<RunState> state = read_run_state(folder_ / "step_2");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->step, 2);
  EXPECT_EQ(state->seed, 9);
  const absl::StatusOr<Policy> resumed = Policy::read(folder_ / "step_2", Policy::Gradients::kTracked);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  Optimizer restored(resumed->weights(), rate);
  ASSERT_TRUE(restore_optimizer(folder_ / "step_2", *state, restored).ok());
  EXPECT_EQ(distance(straight, *resumed), 0);

  update_policy(straight, nullptr, optimizer, sampled.rows(), {});
  update_policy(*resumed, nullptr, restored, sampled.rows(), {});
  EXPECT_EQ(distance(straight, *resumed), 0);
}

TEST_F(Saved, AnOlderCheckpointStaysUntilTheNewOneIsWhole) {
  const ModelConfig config = *read_config(BASCULE_DEMO_MODEL);
  const Policy older = *random_policy(config, 1), newer = *random_policy(config, 2);
  Optimizer optimizer(older.weights(), {}), next(newer.weights(), {});
  const std::filesystem::path step = folder_ / "step_2";
  ASSERT_TRUE(save_run(step, folder_, older, optimizer, {.step = 2}).ok());
  const auto held = [&] { return *Policy::read(step, Policy::Gradients::kNone); };

  EXPECT_FALSE(save_run(step, folder_ / "nowhere", newer, next, {.step = 2}).ok());
  EXPECT_EQ(distance(held(), older), 0) << "a failed write loses nothing";

  const absl::Status saved = save_run(step, step, newer, next, {.step = 2});
  ASSERT_TRUE(saved.ok()) << saved << ": the older one gives config and tokenizer";
  EXPECT_EQ(distance(held(), newer), 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << "left over: " << entry.path();
}

TEST_F(Saved, ACheckpointThatIsNoRunSaysHowToStartFromIt) {
  EXPECT_THAT(read_run_state(folder_).status().message(), HasSubstr("--model starts a new run"));
}

class Supervised : public ::testing::Test {
 protected:
  static ModelConfig digits() {
    ModelConfig config = tiny();
    config.vocab_size = 14;
    config.eos_token_ids = {13};
    return config;
  }
  const ModelConfig config = digits();
  const Tokenizer tokenizer = *Tokenizer::read(BASCULE_DEMO_MODEL);
  const PromptWriter prompts{tokenizer};
};

TEST_F(Supervised, LearnsWhatItIsTaught) {
  absl::StatusOr<Policy> model = random_policy(config, 0);
  const Task task = *arithmetic_task(3);
  const double before = *greedy_accuracy(*model, prompts, task.train);
  const absl::Status status = train_supervised(
      *model, prompts, task, {.steps = 120, .problems_per_step = 8, .optimizer = {.learning_rate = 1e-2}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_LT(before, 0.5);
  EXPECT_EQ(*greedy_accuracy(*model, prompts, task.train), 1);
}

// A step with as many problems at a time as fit equals the whole step, except for rounding.
TEST_F(Supervised, MicroBatchesTakeTheSameStep) {
  const Task task = *arithmetic_task(5);
  const auto trained = [&](std::size_t micro_batch) {
    Policy model = *random_policy(config, 0);
    const absl::Status status = train_supervised(
        model, prompts, task,
        {.steps = 3, .problems_per_step = 8, .micro_batch = micro_batch, .optimizer = {.learning_rate = 1e-3}});
    EXPECT_TRUE(status.ok()) << status;
    return model;
  };
  const Policy whole = trained(8), parts = trained(3);
  EXPECT_LT(distance(whole, parts), 1e-5);
  EXPECT_GT(distance(whole, *random_policy(config, 0)), 1e-3);
  EXPECT_EQ(*greedy_accuracy(whole, prompts, task.train, 5), *greedy_accuracy(whole, prompts, task.train, 64));
}

TEST_F(Supervised, EndsWhereNoGradientIsFinite) {
  Policy model = *random_policy(config, 0);
  model.weights().begin()->second.data().fill_(std::numeric_limits<float>::quiet_NaN());
  const Task task = *arithmetic_task(3);
  EXPECT_THAT(
      train_supervised(model, prompts, task, {.steps = 20, .problems_per_step = 8, .max_bad_steps = 2}).message(),
      HasSubstr("steps 1 to 2: expected a finite loss and finite gradients, found none"));
}

TEST_F(Supervised, NamesWhatItCannotTeach) {
  const auto found = [&](const Problem& problem) {
    return std::string(check_sft_target(prompts, config, problem, /*prompt_tokens=*/4).status().message());
  };
  EXPECT_EQ(found({.prompt = "2+2=", .answer = "4"}), "");
  EXPECT_EQ(*check_sft_target(prompts, config, {.prompt = "2+2=", .answer = "4"}, 4), 2) << "with its end";
  EXPECT_THAT(found({.prompt = "2+2=", .answer = "four"}), HasSubstr("answer \"four\": "));
  EXPECT_THAT(found({.prompt = "2+2=", .answer = ""}), HasSubstr("expected an answer to learn from, found none"));
  EXPECT_THAT(found({.prompt = "2+2=", .answer = std::string(30, '4')}),
              HasSubstr("expected at most 32 tokens, as many as the model has positions for, found 35"));
}

TEST_F(Supervised, TeachesTheWorkedAnswerWhereThereIsOne) {
  Random random(0, 0);
  const Problem plain{.prompt = "2+2=", .answer = "4"};
  EXPECT_EQ(sft_target(plain, 0, random), "4");
  Problem worked{.prompt = "Two and two?", .answer = "4", .columns = {{"rationale", "2 + 2 = 4.\n"}}};
  EXPECT_EQ(sft_target(worked, 0, random), "2 + 2 = 4.\n#### 4") << "as GSM8K writes it";
  worked.columns["rationale"] = "By heart.";
  EXPECT_EQ(sft_target(worked, 0, random), "By heart.\n#### 4");
  worked.columns["rationale"] = "12345678901234567890";
  EXPECT_EQ(sft_target(worked, 1, random).substr(0, 25), "12345678901234567890\n####")
      << "noise changes only the answer";
}

TEST_F(Supervised, NoiseReplacesAShareOfTheDigits) {
  Random random(1, 2);
  int kept = 0;
  for (int i = 0; i < 4000; ++i) kept += with_noise("7+", 0.6, random) == "7+" ? 1 : 0;
  EXPECT_NEAR(kept / 4000.0, 1 - 0.9 * 0.6, 0.03);  // four deviations
  EXPECT_EQ(with_noise("+=", 1, random), "+=") << "only digits";
}

}  // namespace
}  // namespace bascule::ref
