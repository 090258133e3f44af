#include <bascule/trainer_ref/grpo/options/run_plan.h>

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "absl/flags/reflection.h"
#include "support/temp_folder.h"
#include <bascule/kernels/control_group.h>
#include <bascule/trainer_ref/grpo/options/parse_train_flags.h>
#include <bascule/trainer_ref/grpo/process/engine_threads.h>
#include <bascule/transport/program/flags.h>

namespace bascule::ref {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

class TrainFlagsTest : public ::testing::Test {
 protected:
  // The flags that every run needs, and `more`.
  static absl::StatusOr<TrainFlags> flags_with(std::vector<const char*> more) {
    std::vector<const char*> words{"--model=m", "--out=o", "--engines=http://a:1,http://b:2/", "--sync=shm:///s"};
    words.insert(words.end(), more.begin(), more.end());
    const absl::StatusOr<ParsedFlags> parsed = parse_flags(words);
    if (!parsed.ok()) return parsed.status();
    return parse_train_flags();
  }
  static std::string refusal(std::vector<const char*> more) {
    const absl::FlagSaver one_at_a_time;
    const absl::StatusOr<TrainFlags> flags = flags_with(std::move(more));
    return std::string((flags.ok() ? read_start(*flags).status() : flags.status()).message());
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(TrainFlagsTest, ReachTheirPlaces) {
  const auto result = flags_with({"--loss=dapo", "--epsilon-high=0.28", "--beta=0.04", "--max-tokens=7", "--seed=9",
                                  "--reward=exact_match,finished=0.5", "--no-scale-rewards", "--threads=3"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->engines.urls, ElementsAre("http://a:1", "http://b:2"));
  EXPECT_EQ(result->learn.update.loss.kind, LossKind::kDapo);
  EXPECT_EQ(result->learn.update.loss.epsilon_high, 0.28);
  EXPECT_EQ(result->learn.update.loss.max_tokens, 7);
  EXPECT_EQ(result->rollouts.seed, 9);
  EXPECT_EQ(result->reward.specs.size(), 2);
  EXPECT_FALSE(result->reward.scale);
  EXPECT_TRUE(result->learn.needs_reference());
  EXPECT_EQ(result->engines.threads, 3);
  EXPECT_THAT(result->given, Contains(Pair("epsilon-high", "0.28")));
}

TEST_F(TrainFlagsTest, OfTheAlgorithmsReachTheirPlaces) {
  const auto result = flags_with({"--importance-level=sequence", "--off-policy-mask=0.5", "--mini-batches=4",
                                  "--overlong-buffer=5", "--overlong-penalty=0.5", "--max-tokens=9",
                                  "--dynamic-sampling=3", "--num-iterations=2", "--metrics=127.0.0.1:0"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->learn.update.loss.importance_level, ImportanceLevel::kSequence);
  EXPECT_EQ(result->learn.update.loss.off_policy_mask, 0.5);
  EXPECT_EQ(result->learn.update.optimizer_steps(), 8);
  EXPECT_EQ(result->reward.overlong.max_tokens, 9);
  EXPECT_EQ(result->reward.overlong.buffer, 5);
  EXPECT_EQ(result->reward.overlong.penalty, 0.5);
  EXPECT_EQ(result->rollouts.dynamic_sampling, 3);
  EXPECT_EQ(result->report.metrics, "127.0.0.1:0");
  EXPECT_THAT(refusal({"--max-tokens=9", "--overlong-buffer=10"}),
              HasSubstr("--overlong-buffer=10: give a value from 0 to 9"));
  EXPECT_THAT(refusal({"--importance-level=word"}), HasSubstr("give one of token, sequence"));
  EXPECT_THAT(refusal({"--dynamic-sampling=-1"}), HasSubstr("give a value from 0 to 100"));
  EXPECT_THAT(refusal({"--mini-batches=0"}), HasSubstr("give a value from 1 to 1000"));
  EXPECT_THAT(refusal({"--off-policy-mask=-1"}), HasSubstr("as --off-policy-mask=0.5"));
}

TEST_F(TrainFlagsTest, TheLearningRateFallsToTheEndOfTheRunUnlessTold) {
  const auto resolved = [](std::vector<const char*> flags) {
    const absl::FlagSaver one_at_a_time;
    const auto result = flags_with(std::move(flags));
    EXPECT_TRUE(result.ok()) << result.status();
    const auto optimizer = resolve_schedule(*result, result->rollouts.steps);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    return *optimizer;
  };
  EXPECT_EQ(resolved({}).schedule, LearningRateSchedule::kConstant);
  EXPECT_EQ(resolved({"--decay-steps=70"}).schedule, LearningRateSchedule::kLinear) << "as before there were schedules";
  EXPECT_EQ(resolved({"--decay-steps=70"}).decay_steps, 70);
  const OptimizerOptions cosine = resolved(
      {"--lr-schedule=cosine", "--steps=30", "--num-iterations=2", "--mini-batches=4", "--min-learning-rate=1e-7"});
  EXPECT_EQ(cosine.schedule, LearningRateSchedule::kCosine);
  EXPECT_EQ(cosine.decay_steps, 240) << "optimizer steps";
  EXPECT_EQ(cosine.min_learning_rate, 1e-7);
  EXPECT_EQ(resolved({"--lr-schedule=linear", "--steps=30", "--supervised"}).decay_steps, 30);

  EXPECT_THAT(refusal({"--lr-schedule=constant", "--decay-steps=9"}),
              HasSubstr("--decay-steps=9: --lr-schedule=constant"));
  EXPECT_THAT(refusal({"--lr-schedule=step"}), HasSubstr("give one of auto, constant, linear, cosine"));
  EXPECT_THAT(refusal({"--min-learning-rate=1"}), HasSubstr("--min-learning-rate=1: give a value from 0 to 1e-06"));
  EXPECT_THAT(refusal({"--min-learning-rate=1e-7"}), HasSubstr("add --lr-schedule=cosine, or leave it out"));

  auto none_left = flags_with({"--lr-schedule=linear", "--steps=30", "--warmup-steps=30"});
  ASSERT_TRUE(none_left.ok()) << none_left.status();
  EXPECT_THAT(resolve_schedule(*none_left, 30).status().message(),
              HasSubstr("--warmup-steps=30: the run has 30 optimizer steps"));
  const absl::FlagSaver another_time;
  auto too_early = flags_with({"--decay-steps=20", "--warmup-steps=0", "--lr-schedule=linear", "--steps=30"});
  ASSERT_TRUE(too_early.ok()) << too_early.status();
  EXPECT_THAT(
      resolve_schedule(*too_early, 30).status().message(),
      HasSubstr("--decay-steps=20: the run has 30 optimizer steps, and would go on with a learning rate of 0; give "
                "--decay-steps=30"));
}

TEST_F(TrainFlagsTest, ThatMakeNoSenseAreRefusedWithWhatWould) {
  EXPECT_THAT(refusal({"--model="}), HasSubstr("--model=: give the folder of a checkpoint"));
  EXPECT_THAT(refusal({"--engines="}), HasSubstr("give the URLs of the engines"));
  EXPECT_THAT(refusal({"--engines=http://a:1,http://a:1"}), HasSubstr("the same URL stands twice"));
  EXPECT_THAT(refusal({"--engines=127.0.0.1:8001"}), HasSubstr("expected http://HOST:PORT"));
  EXPECT_THAT(refusal({"--sync="}), HasSubstr("give the endpoint that the engines were started with"));
  EXPECT_THAT(refusal({"--steps=0"}), HasSubstr("--steps=0: give 1 or more"));
  EXPECT_THAT(refusal({"--temperature=0"}), HasSubstr("completions of a group must differ"));
  EXPECT_THAT(refusal({"--temperature=1e-7"}), HasSubstr("give a value from 1e-06 to 100, as --temperature=1"));
  EXPECT_THAT(refusal({"--top-k=1"}), HasSubstr("--top-k=1: give 0, for all tokens, or a value from 2 to"));
  EXPECT_THAT(refusal({"--top-p=0"}), HasSubstr("--top-p=0: give a value above 0, at most 1, as --top-p=0.95"));
  EXPECT_THAT(refusal({"--epochs=2"}), HasSubstr("--epochs=2: it counts passes over a file; add --task=data"));
  EXPECT_THAT(refusal({"--task=data", "--data=f", "--epochs=2", "--steps=60"}),
              HasSubstr("--epochs=2: --steps=60 is given, too; leave one out"));
  EXPECT_THAT(refusal({"--task=data", "--data=f", "--epochs=-1"}), HasSubstr("--epochs=-1: give a value from 0"));
  EXPECT_THAT(refusal({"--system-prompt=Add."}), HasSubstr("--system-prompt=Add.: add --chat"));
  EXPECT_THAT(refusal({"--chat-template-kwargs=[1]"}), HasSubstr("expected a JSON object, found a JSON array"));
  EXPECT_THAT(refusal({"--chat-template-kwargs={"}), HasSubstr("--chat-template-kwargs={: "));
  EXPECT_THAT(refusal({"--chat-template-kwargs={\"tools\": []}"}), HasSubstr("\"tools\" is the trainer's own"));
  EXPECT_THAT(refusal({"--loss=ppo"}), HasSubstr("--loss=ppo: give one of grpo, bnpo, dr_grpo, dapo"));
  EXPECT_THAT(refusal({"--warmup-steps=5", "--decay-steps=3"}), HasSubstr("give 0, or more than --warmup-steps"));
  EXPECT_THAT(refusal({"--epsilon-low=1.5"}), HasSubstr("--epsilon-low=1.5: give a value from 0 to 1"));
  EXPECT_THAT(refusal({"--task=data"}), HasSubstr("--task=data needs a file"));
  EXPECT_THAT(refusal({"--data=f"}), HasSubstr("add --task=data"));
  EXPECT_THAT(refusal({"--eval-data=f"}), HasSubstr("--eval-data=f: add --task=data"));
  EXPECT_THAT(refusal({"--prompt-column="}), HasSubstr("give the name of a column, as --prompt-column=prompt"));
  EXPECT_THAT(refusal({"--reward-timeout=-1s"}), HasSubstr("give a finite time above 0"));
  EXPECT_THAT(refusal({"--reward=exec:"}), HasSubstr("expected a program behind exec:"));
  EXPECT_THAT(refusal({"--supervised", "--resume=step_2"}), HasSubstr("a supervised run cannot be resumed"));
  EXPECT_THAT(refusal({"--device=gpu"}), HasSubstr("--device=gpu: expected cpu, cuda, cuda:N or auto"));
  EXPECT_THAT(refusal({"--spawn-engines=2"}), HasSubstr("--engines=http://a:1: --spawn-engines starts engines of this "
                                                        "run's own; leave one of the two out"));
  EXPECT_THAT(refusal({"--engines=", "--spawn-engines=2", "--supervised"}),
              HasSubstr("a supervised run has no engines"));
  EXPECT_THAT(refusal({"--colocate", "--max-staleness=1"}), HasSubstr("engines sleep while the trainer trains"));
  EXPECT_THAT(refusal({"--colocate", "--sync-every=2"}), HasSubstr("engines wake up for each step's version"));
  EXPECT_THAT(refusal({"--supervised", "--colocate"}), HasSubstr("a supervised run has no engines"));
  EXPECT_THAT(refusal({"--reward=exact"}), AllOf(HasSubstr("--reward=exact: unknown reward \"exact\""),
                                                 EndsWith(", as --reward=exact_match,finished=0.1")));
  EXPECT_THAT(refusal({"--reward=finished,finished"}),
              HasSubstr("--reward=finished,finished: reward \"finished\" stands"));
  EXPECT_THAT(refusal({"--operands=1"}), HasSubstr("--operands=1: give a value from 2 to 50, as --operands="));
  EXPECT_THAT(refusal({"--request-timeout=0s"}), HasSubstr("give a finite time above 0"));
}

TEST_F(TrainFlagsTest, OfASingleCopyThatCannotBeAreRefusedByName) {
  EXPECT_EQ(refusal({"--sync=shm:///s?slots=1", "--max-staleness=1", "--colocate=false"}), "");
  EXPECT_THAT(
      refusal({"--sync=shm:///s?slots=1&wire_dtype=bf16"}),
      AllOf(StartsWith("--sync=shm:///s?slots=1&wire_dtype=bf16: slots=1: "), HasSubstr("leave wire_dtype out")));
  EXPECT_THAT(refusal({"--sync=memmap:///s?slots=1"}), HasSubstr("or another scheme, as --sync=shm:///s?slots=1"));
  EXPECT_THAT(refusal({"--sync=shm:///s?slots=1", "--device=cuda"}), HasSubstr("as --sync=cuda-ipc:///s?slots=1"));
  EXPECT_THAT(refusal({"--sync=shm:///s?slots=1", "--sync-every=2"}),
              AllOf(StartsWith("--sync-every=2: "), HasSubstr("give 1, or slots=2 in --sync")));
  EXPECT_THAT(refusal({"--sync=shm:///s?slots=1", "--engines=", "--spawn-engines=1", "--engine-dtype=bf16"}),
              AllOf(StartsWith("--engine-dtype=bf16: "), HasSubstr("give f32, or slots=2 in --sync")));
}

// As floats some of these are infinite, and products of the others do not fit into 64 bits.
TEST_F(TrainFlagsTest, BeyondAllSenseAreRefusedWithARangeAndAnExample) {
  for (const char* flag : {"temperature", "epsilon-low", "epsilon-high", "beta", "importance-cap", "learning-rate",
                           "weight-decay", "max-grad-norm", "label-noise"}) {
    const std::string word = "--" + std::string(flag) + "=1e39";
    EXPECT_THAT(refusal({word.c_str()}), AllOf(StartsWith("--" + std::string(flag) + "=1e+39: give a "),
                                               HasSubstr(", as --" + std::string(flag) + "=")));
  }
  for (const char* flag : {"prompts-per-step", "max-tokens", "num-iterations", "eval-samples", "group-size"}) {
    const std::string word = "--" + std::string(flag) + "=2000000000";
    EXPECT_THAT(refusal({word.c_str()}), AllOf(StartsWith(word + ": "), HasSubstr("give a value from "),
                                               HasSubstr(", as --" + std::string(flag) + "=")));
  }
  EXPECT_EQ(refusal({"--group-size=65536", "--max-tokens=1048576", "--temperature=100", "--beta=1e6"}), "");
}

TEST_F(TrainFlagsTest, AResumedRunIsLookedAtBeforeAnythingStarts) {
  namespace fs = std::filesystem;
  const test::TempFolder folder;
  const std::string state = R"({"step": 60, "seed": 7, "optimizer_steps": 60})";
  std::ofstream(folder.path() / "trainer_state.json") << state;
  const std::string resume = "--resume=" + folder.path().string();
  EXPECT_EQ(refusal({"--resume=/nope"}),
            "--resume=/nope: no such folder; give a folder step_N of an earlier run, as --resume=out/run/step_60");
  EXPECT_THAT(refusal({"--resume=/"}), HasSubstr("--resume=/: no trainer_state.json in it"));
  EXPECT_THAT(refusal({resume.c_str()}), HasSubstr("was trained with --seed=7"));
  EXPECT_THAT(refusal({resume.c_str(), "--seed=7"}),
              HasSubstr("is at step 60 already; give a larger one, as --steps=120"));
  const auto goes_on = flags_with({resume.c_str(), "--seed=7", "--steps=61"});
  ASSERT_TRUE(goes_on.ok()) << goes_on.status();
  const auto start = read_start(*goes_on);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->resumed.step, 60);
  EXPECT_EQ(start->model, "m");
}

TEST_F(TrainFlagsTest, EnginesOfItsOwnNeedNeitherUrlsNorAnEndpoint) {
  const auto result = flags_with({"--engines=", "--sync=", "--spawn-engines=3"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->engines.spawn.engines, 3);
  EXPECT_EQ(result->engines.sync, "");
  EXPECT_EQ(result->engines.threads, trainer_threads(0, kernels::usable_cores(), 3));
}

TEST_F(TrainFlagsTest, DeviceAutoIsToldToTheLog) {
  ASSERT_TRUE(parse_flags(std::vector<const char*>{"--model=m", "--out=o", "--spawn-engines=1", "--device=auto"}).ok());
  std::string log;
  const auto result = parse_train_flags([&](std::string_view line) { log += line; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(log, StartsWith(result->compute.device.is_cpu() ? "--device=auto: computes on the CPU: "
                                                              : "--device=auto: computes on cuda:0"));
}

TEST_F(TrainFlagsTest, EpochsEndWithTheLastProblem) {
  const auto told =
      flags_with({"--task=data", "--data=f", "--epochs=2.5", "--prompts-per-step=4", "--top-k=5", "--top-p=0.5"});
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->rollouts.top_k, 5);
  EXPECT_EQ(told->rollouts.top_p, 0.5);
  EXPECT_EQ(*resolve_steps(*told, /*resumed_step=*/0, /*problems=*/9), 6) << "22.5 problems, 4 a step";
  TrainFlags resuming = *told;
  resuming.resume = "out/step_6";
  EXPECT_EQ(*resolve_steps(resuming, 5, 9), 6);
  EXPECT_EQ(
      resolve_steps(resuming, 6, 9).status().message(),
      "--epochs=2.5: out/step_6 is at step 6 already, and that many epochs of 9 problems end with step 6; give more");
}

TEST_F(TrainFlagsTest, StepsAreSixtyUnlessTheyAreTold) {
  EXPECT_EQ(*resolve_steps(*flags_with({}), /*resumed_step=*/0, /*problems=*/0), 60);
  EXPECT_EQ(flags_with({"--steps=7"})->rollouts.steps, 7);
  const test::TempFolder folder;
  const std::string file = (folder.path() / "flags.json").string(), config = "--config=" + file;
  std::ofstream(file) << R"({"steps": 9})";
  EXPECT_EQ(flags_with({config.c_str()})->rollouts.steps, 9);
  std::ofstream(file) << R"({"steps": "many"})";
  EXPECT_THAT(refusal({config.c_str()}), HasSubstr("expected INTEGER"));
}

TEST_F(TrainFlagsTest, AModelWithoutAChatTemplateIsRefusedWhereOneIsNeeded) {
  const test::TempFolder folder;
  std::filesystem::copy(BASCULE_DEMO_MODEL, folder.path(), std::filesystem::copy_options::recursive);
  const std::string model = "--model=" + folder.path().string();
  const Task texts{.train = {{.prompt = "1+1="}}, .held_out = {}};
  const Task chats{.train = {{.messages = {{{"role", "user"}, {"content", "1+1="}}}}}, .held_out = {}};
  const auto alone = [](std::vector<const char*> flags) {
    const absl::FlagSaver one_at_a_time;
    return flags_with(std::move(flags));
  };
  const auto told = alone({model.c_str()}), chat = alone({model.c_str(), "--chat", "--system-prompt=1"}),
             variables = alone({model.c_str(), "--chat-template-kwargs={\"b\": 1, \"a\": 2}"});
  for (const auto* each : {&told, &chat, &variables}) ASSERT_TRUE(each->ok()) << each->status();
  const auto read = [](const TrainFlags& flags, const Task& task) {
    return read_prompt_writer(flags.task.chat, flags.model, task);
  };
  const auto refused = [&](const TrainFlags& flags, const Task& task) {
    return std::string(read(flags, task).status().message());
  };
  EXPECT_TRUE(read(*told, texts).ok());
  EXPECT_THAT(refused(*told, chats),
              AllOf(StartsWith(model), HasSubstr("has no chat template"), HasSubstr("messages need one")));
  EXPECT_THAT(refused(*chat, texts), AllOf(StartsWith(model), HasSubstr("--chat needs one")));
  EXPECT_EQ(refused(*variables, texts),
            "--chat-template-kwargs={\"b\":1,\"a\":2}: no problem is written by a chat "
            "template; add --chat, or leave it out");
  std::ofstream(folder.path() / "chat_template.jinja") << "{{ messages | sum }}";
  EXPECT_THAT(refused(*told, chats), AllOf(StartsWith(model), HasSubstr("sum"), HasSubstr("line 1")));
  std::ofstream(folder.path() / "chat_template.jinja") << "{% for m in messages %}{{ m.content }} {% endfor %}";
  const auto prompts = read(*chat, texts);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_THAT(*prompts->tokens_of(texts.train[0]), ElementsAre(1, 12, 1, 10, 1, 11, 12)) << "1, and 1+1=";
}

TEST_F(TrainFlagsTest, ADataFileThatCannotBeReadIsNamedWithItsFlag) {
  const auto told = flags_with({"--task=data", "--data=/nope.jsonl"});
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(std::string(read_task_of(told->task).status().message()),
              AllOf(StartsWith("--data=/nope.jsonl: No such file or directory; give a file"),
                    EndsWith(", as --data=problems.jsonl")));
}

TEST_F(TrainFlagsTest, AFileToEvaluateOnLeavesTheOtherWhole) {
  const test::TempFolder folder;
  const std::string data = (folder.path() / "data.jsonl").string(), eval = (folder.path() / "eval.jsonl").string();
  const std::string with_data = "--data=" + data, with_eval = "--eval-data=" + eval;
  std::ofstream(data) << R"({"text": "1+1=", "answer": 2})"
                      << "\n";
  std::ofstream(eval) << R"({"text": "2+2=", "answer": "4"})"
                      << "\n";
  const auto told = flags_with({"--task=data", with_data.c_str(), with_eval.c_str(), "--prompt-column=text"});
  ASSERT_TRUE(told.ok()) << told.status();
  const auto task = read_task_of(told->task);
  ASSERT_TRUE(task.ok()) << task.status();
  ASSERT_EQ(task->train.size(), 1);
  EXPECT_EQ(task->train[0].prompt, "1+1=");
  ASSERT_EQ(task->held_out.size(), 1);
  EXPECT_EQ(task->held_out[0].prompt, "2+2=");

  TaskFlags alone = told->task;
  alone.eval_data.clear();
  EXPECT_THAT(
      std::string(read_task_of(alone).status().message()),
      AllOf(StartsWith("--data="), HasSubstr("two different prompts"), EndsWith("or --eval-data=problems.jsonl")));
  std::ofstream(eval) << "{\"text\": \"2+2=\"}\n";
  EXPECT_THAT(std::string(read_task_of(told->task).status().message()),
              AllOf(StartsWith(with_eval), HasSubstr("line 1: expected a key \"answer\"")));
  std::ofstream(eval) << "\n";
  EXPECT_THAT(std::string(read_task_of(told->task).status().message()),
              AllOf(StartsWith(with_eval), HasSubstr("found no problem")));
}

TEST_F(TrainFlagsTest, ProblemsThatTheModelCannotReadAreRefusedWithTheirFlag) {
  const std::string model = "--model=" BASCULE_DEMO_MODEL;
  auto told = flags_with({model.c_str(), "--task=data", "--data=a.jsonl", "--eval-data=b.jsonl"});
  ASSERT_TRUE(told.ok()) << told.status();
  const PromptWriter prompts(*Tokenizer::read(BASCULE_DEMO_MODEL));
  const Problem good{.prompt = "1+1="}, bad{.prompt = "one"}, beyond{.prompt_token_ids = {14}};
  EXPECT_TRUE(check_task(*told, told->model, {.train = {good}, .held_out = {good}}, prompts).ok());
  EXPECT_THAT(
      std::string(check_task(*told, told->model, {.train = {bad}, .held_out = {good}}, prompts).status().message()),
      StartsWith("--data=a.jsonl: prompt \"one\""));
  EXPECT_THAT(
      std::string(check_task(*told, told->model, {.train = {good}, .held_out = {beyond}}, prompts).status().message()),
      AllOf(StartsWith("--eval-data=b.jsonl: "), HasSubstr("token ids below 14")));
}

TEST_F(TrainFlagsTest, ARunDoesNotWriteOverItsOwnModel) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / ("options_" + std::to_string(::getpid()));
  fs::create_directories(folder / "run" / "step_2");
  fs::create_directories(folder / "run" / "other");
  fs::create_directory_symlink(folder / "run", folder / "link");
  const std::string run = "--out=" + (folder / "run").string();
  const auto refused = [&](const std::string& out, const fs::path& model) {
    return refusal({out.c_str(), ("--model=" + model.string()).c_str()});
  };
  for (const fs::path& model : {folder / "run" / "step_2", folder / "run" / "step_2" / "", folder / "link" / "step_2",
                                fs::relative(folder / "run" / "step_2")})
    EXPECT_THAT(refused(run, model), HasSubstr("give another --out")) << model;
  EXPECT_THAT(refused("--out=" + (folder / "link").string(), folder / "run" / "step_2"), HasSubstr("step_2"));
  EXPECT_EQ(refused(run, folder / "run" / "other"), "");
  EXPECT_EQ(refused("--out=" + (folder / "new").string(), folder / "run" / "step_2"), "");
  fs::remove_all(folder);
}

TEST_F(TrainFlagsTest, ASupervisedRunNeedsNoEngines) {
  EXPECT_TRUE(flags_with({"--supervised", "--engines=", "--sync="}).ok());
}

TEST_F(TrainFlagsTest, ASupervisedRunIsToldNothingThatOnlyGrpoHas) {
  EXPECT_THAT(refusal({"--supervised", "--metrics=127.0.0.1:9"}),
              HasSubstr("--metrics=127.0.0.1:9: it has no meaning with --supervised; leave it out"));
  EXPECT_THAT(refusal({"--supervised", "--mini-batches=2"}), HasSubstr("--mini-batches=2: it has no meaning"));
}

}  // namespace
}  // namespace bascule::ref
