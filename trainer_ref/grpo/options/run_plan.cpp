#include <bascule/trainer_ref/grpo/options/run_plan.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <bascule/trainer_ref/grpo/learn/supervised.h>
#include <bascule/trainer_ref/model/config.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

absl::StatusOr<std::vector<Problem>> read_file_of(std::string_view flag, const std::filesystem::path& file,
                                                  const DataColumns& columns) {
  absl::StatusOr<std::vector<Problem>> problems = read_problems(file, columns);
  if (problems.ok() && problems->empty()) problems = invalid_argument("found no problem in it");
  BASCULE_TRY(of_flag(problems.status(), flag, file.string(),
                      cat("give a file of JSON lines {\"prompt\": …, \"answer\": …}, as --", flag, "=problems.jsonl")));
  return problems;
}

}  // namespace

absl::StatusOr<Task> read_task_of(const TaskFlags& flags) {
  if (flags.kind == "atropos") return Task{};
  if (flags.kind != "data") return arithmetic_task(flags.operands);
  const std::string data = flags.data.string();
  absl::StatusOr<std::vector<Problem>> problems = read_file_of("data", flags.data, flags.columns);
  if (!problems.ok()) return problems.status();
  if (flags.eval_data.empty()) {
    absl::StatusOr<Task> task = split(*std::move(problems));
    BASCULE_TRY(of_flag(task.status(), "data", data, "give more of them, or --eval-data=problems.jsonl"));
    return task;
  }
  absl::StatusOr<std::vector<Problem>> held_out = read_file_of("eval-data", flags.eval_data, flags.columns);
  if (!held_out.ok()) return held_out.status();
  return Task{.train = *std::move(problems), .held_out = *std::move(held_out)};
}

absl::StatusOr<std::int64_t> resolve_steps(const TrainFlags& flags, std::int64_t resumed_step, std::size_t problems) {
  const double epochs = flags.rollouts.epochs;
  if (epochs == 0) return flags.rollouts.steps;
  const std::int64_t steps = steps_of_epochs(epochs, problems, flags.rollouts.prompts_per_step);
  if (flags.resume.empty() || resumed_step < steps) return steps;
  return invalid_argument("--epochs=", epochs, ": ", flags.resume.string(), " is at step ", resumed_step,
                          " already, and that many epochs of ", problems, " problems end with step ", steps,
                          "; give more");
}

absl::StatusOr<OptimizerOptions> resolve_schedule(const TrainFlags& flags, std::int64_t steps) {
  OptimizerOptions optimizer = flags.learn.optimizer;
  const std::int64_t last = steps * (flags.supervised ? 1 : flags.learn.update.optimizer_steps());
  if (optimizer.schedule != LearningRateSchedule::kConstant && optimizer.decay_steps == 0) {
    if (last <= optimizer.warmup_steps)
      return invalid_argument("--warmup-steps=", optimizer.warmup_steps, ": the run has ", last,
                              " optimizer steps in all, and --lr-schedule has to follow the warm-up; give fewer");
    optimizer.decay_steps = last;
  }
  // A resumed run keeps its schedule.
  if (flags.resume.empty() && optimizer.decay_steps > 0 && optimizer.decay_steps < last &&
      optimizer.min_learning_rate == 0)
    return invalid_argument("--decay-steps=", optimizer.decay_steps, ": the run has ", last,
                            " optimizer steps, and would continue with a learning rate of 0; give --decay-steps=", last,
                            ", a --min-learning-rate, or fewer steps");
  return optimizer;
}

absl::StatusOr<PromptWriter> read_prompt_writer(const ChatOptions& options, const std::filesystem::path& model,
                                                const Task& task) {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::read(model);
  BASCULE_TRY(of_flag(tokenizer.status(), "model", model.string(), kModelAdvice));
  if (!needs_template(options, task)) {
    if (options.variables.empty()) return PromptWriter(*std::move(tokenizer));
    return invalid_argument("--chat-template-kwargs=", options.variables.dump(),
                            ": no problem uses a chat template; add --chat, or leave it out");
  }
  // One time for the whole run, so that a template that writes the date always writes the same prompts.
  const auto now = std::chrono::system_clock::now();
  absl::StatusOr<ChatTemplate> chat = ChatTemplate::read(model, {.now = [now] { return now; }});
  BASCULE_TRY(of_flag(chat.status(), "model", model.string(),
                      options.texts ? "--chat needs one; give a model that has it, or leave --chat out"
                                    : "messages need one; give a model that has it, or write them as text"));
  return PromptWriter(*std::move(tokenizer), *std::move(chat), options);
}

absl::StatusOr<RowTokens> check_task(const TrainFlags& flags, const std::filesystem::path& model, const Task& task,
                                     const PromptWriter& prompts) {
  BASCULE_ASSIGN(const ModelConfig config, read_config(model));
  if (flags.supervised && config.eos_token_ids.empty())
    return invalid_argument(
        "--model=", model.string(),
        ": answers need an end token: expected an eos_token_id in config.json, or an eos_token of the "
        "tokenizer, found none");
  RowTokens rows{.shortest_prompt = std::numeric_limits<std::int64_t>::max(),
                 .completion = flags.supervised ? 0 : flags.rollouts.max_tokens};
  if (flags.atropos.on()) rows.shortest_prompt = 0;  // --max-tokens includes prompts
  const auto look = [&](const Problem& problem, std::int64_t prompt_tokens) {
    rows.shortest_prompt = std::min(rows.shortest_prompt, prompt_tokens);
    rows.longest_prompt = std::max(rows.longest_prompt, prompt_tokens);
    if (!flags.supervised) return absl::OkStatus();
    BASCULE_ASSIGN(const std::int64_t answer, check_sft_target(prompts, config, problem, prompt_tokens));
    rows.completion = std::max(rows.completion, answer);
    return absl::OkStatus();
  };
  const auto check = [&](std::string_view flag, const std::string& value, const std::vector<Problem>& problems) {
    return of_flag(check_prompts(problems, prompts, config.vocab_size, look), flag, value,
                   "give problems that the model can read, as --data=problems.jsonl");
  };
  const bool from_file = flags.task.kind == "data", two_files = !flags.task.eval_data.empty();
  const std::string_view flag = from_file ? "data" : "task";
  const std::string value = from_file ? flags.task.data.string() : flags.task.kind;
  BASCULE_TRY(check(flag, value, task.train));
  BASCULE_TRY(check(two_files ? "eval-data" : flag, two_files ? flags.task.eval_data.string() : value, task.held_out));
  return rows;
}

absl::StatusOr<PreparedRun> prepare_run(const TrainFlags& flags, StartPoint start, std::string sync) {
  BASCULE_ASSIGN(Task task, read_task_of(flags.task));
  FittedPlan fitted{.optimizer = flags.learn.optimizer};
  BASCULE_ASSIGN(fitted.steps, resolve_steps(flags, start.resumed.step, task.train.size()));
  // If problems may be left out, fit_plan() determines the run's last step after that.
  const bool ends_later = !flags.supervised && flags.engines.drop_long && flags.rollouts.epochs != 0;
  if (!ends_later) {
    BASCULE_ASSIGN(fitted.optimizer, resolve_schedule(flags, fitted.steps));
  }
  BASCULE_ASSIGN(PromptWriter prompts, read_prompt_writer(flags.task.chat, start.model, task));
  BASCULE_ASSIGN(const RowTokens rows, check_task(flags, start.model, task, prompts));
  return PreparedRun{.task = std::move(task),
                     .prompts = std::move(prompts),
                     .plan = {.start = std::move(start), .rows = rows, .sync = std::move(sync)},
                     .fitted = std::move(fitted)};
}

absl::StatusOr<PreparedRun> prepare_grpo(const TrainFlags& flags, StartPoint start, std::string sync,
                                         const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(PreparedRun run, prepare_run(flags, std::move(start), std::move(sync)));
  BASCULE_TRY(annotate(check_answers(flags.reward.specs, run.task.train), cat("--reward=", flags.reward.text)));
  BASCULE_ASSIGN(run.plan.config, resolve_run_config(flags, run.plan.start, run.plan.sync, run.task, log));
  return run;
}

absl::StatusOr<FittedPlan> fit_plan(const TrainFlags& flags, const RunPlan& plan, const Task& task,
                                    const std::function<void(std::string_view)>& log) {
  FittedPlan fitted;
  BASCULE_ASSIGN(fitted.steps, resolve_steps(flags, plan.start.resumed.step, task.train.size()));
  BASCULE_ASSIGN(fitted.optimizer, resolve_schedule(flags, fitted.steps));
  BASCULE_ASSIGN(fitted.config, resolve_kept_task(flags, plan.start.resumed, plan.config.run, task, log));
  return fitted;
}

}  // namespace bascule::ref
