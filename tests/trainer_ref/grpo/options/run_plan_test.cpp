#include <bascule/trainer_ref/grpo/options/run_plan.h>

#include <fstream>

#include "flags_fixture.h"
#include "support/temp_folder.h"

namespace bascule::ref {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using RunPlanTest = TrainFlagsTest;

TEST_F(RunPlanTest, TheLearningRateFallsToTheEndOfTheRunUnlessTold) {
  const auto resolved = [](std::vector<const char*> flags) {
    const absl::FlagSaver one_at_a_time;
    const auto result = flags_with(std::move(flags));
    EXPECT_TRUE(result.ok()) << result.status();
    const auto optimizer = resolve_schedule(*result, result->rollouts.steps);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    return *optimizer;
  };
  EXPECT_EQ(resolved({}).schedule, LearningRateSchedule::kConstant);
  EXPECT_EQ(resolved({"--decay-steps=70"}).schedule, LearningRateSchedule::kLinear) << "as before schedules existed";
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
      HasSubstr("--decay-steps=20: the run has 30 optimizer steps, and would continue with a learning rate of 0; "
                "give --decay-steps=30"));
}

TEST_F(RunPlanTest, EpochsEndWithTheLastProblem) {
  const auto told = flags_with(
      {"--task=data", "--data=f", "--epochs=2.5", "--prompts-per-step=4", "--top-k=5", "--top-p=0.5", "--min-p=0.1"});
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->rollouts.top_k, 5);
  EXPECT_EQ(told->rollouts.top_p, 0.5);
  EXPECT_EQ(told->rollouts.min_p, 0.1);
  EXPECT_EQ(*resolve_steps(*told, /*resumed_step=*/0, /*problems=*/9), 6) << "22.5 problems, 4 per step";
  TrainFlags resuming = *told;
  resuming.resume = "out/step_6";
  EXPECT_EQ(*resolve_steps(resuming, 5, 9), 6);
  EXPECT_EQ(
      resolve_steps(resuming, 6, 9).status().message(),
      "--epochs=2.5: out/step_6 is at step 6 already, and that many epochs of 9 problems end with step 6; give more");
}

TEST_F(RunPlanTest, StepsAreSixtyUnlessTheyAreTold) {
  EXPECT_EQ(*resolve_steps(*flags_with({}), /*resumed_step=*/0, /*problems=*/0), 60);
  EXPECT_EQ(flags_with({"--steps=7"})->rollouts.steps, 7);
  const test::TempFolder folder;
  const std::string file = (folder.path() / "flags.json").string(), config = "--config=" + file;
  std::ofstream(file) << R"({"steps": 9})";
  EXPECT_EQ(flags_with({config.c_str()})->rollouts.steps, 9);
  std::ofstream(file) << R"({"steps": "many"})";
  EXPECT_THAT(refusal({config.c_str()}), HasSubstr("expected INTEGER"));
}

TEST_F(RunPlanTest, AModelWithoutAChatTemplateIsRefusedWhereOneIsNeeded) {
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
            "--chat-template-kwargs={\"b\":1,\"a\":2}: no problem uses a chat template; add --chat, or "
            "leave it out");
  std::ofstream(folder.path() / "chat_template.jinja") << "{{ messages | wordcount }}";
  EXPECT_THAT(refused(*told, chats), AllOf(StartsWith(model), HasSubstr("wordcount"), HasSubstr("line 1")));
  std::ofstream(folder.path() / "chat_template.jinja") << "{% for m in messages %}{{ m.content }} {% endfor %}";
  const auto prompts = read(*chat, texts);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_THAT(*prompts->tokens_of(texts.train[0]), ElementsAre(1, 12, 1, 10, 1, 11, 12)) << "1, and 1+1=";
}

TEST_F(RunPlanTest, ADataFileThatCannotBeReadIsNamedWithItsFlag) {
  const auto told = flags_with({"--task=data", "--data=/nope.jsonl"});
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(std::string(read_task_of(told->task).status().message()),
              AllOf(StartsWith("--data=/nope.jsonl: No such file or directory; give a file"),
                    EndsWith(", as --data=problems.jsonl")));
}

TEST_F(RunPlanTest, AFileToEvaluateOnLeavesTheOtherWhole) {
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

TEST_F(RunPlanTest, ProblemsThatTheModelCannotReadAreRefusedWithTheirFlag) {
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

}  // namespace
}  // namespace bascule::ref
