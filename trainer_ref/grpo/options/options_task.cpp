// The problems of a run, by its options.
#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <bascule/trainer_ref/grpo/learn/supervised.h>
#include <bascule/trainer_ref/grpo/options/options.h>
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

absl::StatusOr<Task> read_task_of(const TrainOptions& options) {
  if (options.task != "data") return arithmetic_task(options.operands);
  const std::string data = options.data.string();
  absl::StatusOr<std::vector<Problem>> problems = read_file_of("data", options.data, options.columns);
  if (!problems.ok()) return problems.status();
  if (options.eval_data.empty()) {
    absl::StatusOr<Task> task = split(*std::move(problems));
    BASCULE_TRY(of_flag(task.status(), "data", data, "give more of them, or --eval-data=problems.jsonl"));
    return task;
  }
  absl::StatusOr<std::vector<Problem>> held_out = read_file_of("eval-data", options.eval_data, options.columns);
  if (!held_out.ok()) return held_out.status();
  return Task{.train = *std::move(problems), .held_out = *std::move(held_out)};
}

absl::Status resolve_steps(TrainOptions& options, const Task& task) {
  if (options.epochs == 0) return absl::OkStatus();
  options.steps = steps_of_epochs(options.epochs, task.train.size(), options.prompts_per_step);
  if (options.resume.empty() || options.resumed.step < options.steps) return absl::OkStatus();
  return invalid_argument("--epochs=", options.epochs, ": ", options.resume.string(), " is at step ",
                          options.resumed.step, " already, and that many epochs of ", task.train.size(),
                          " problems end with step ", options.steps, "; give more");
}

absl::StatusOr<PromptWriter> read_prompt_writer(const TrainOptions& options, const Task& task) {
  const std::string model = options.model.string();
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::read(options.model);
  BASCULE_TRY(of_flag(tokenizer.status(), "model", model, kModelAdvice));
  if (!needs_template(options.chat, task)) {
    if (options.chat.variables.empty()) return PromptWriter(*std::move(tokenizer));
    return invalid_argument("--chat-template-kwargs=", options.chat.variables.dump(),
                            ": no problem is written by a chat template; add --chat, or leave it out");
  }
  // One clock for the whole run: a template that writes the date writes the same prompts to its end.
  const auto now = std::chrono::system_clock::now();
  absl::StatusOr<ChatTemplate> chat = ChatTemplate::read(options.model, {.now = [now] { return now; }});
  BASCULE_TRY(of_flag(chat.status(), "model", model,
                      options.chat.texts ? "--chat needs one; give a model that brings it, or leave --chat out"
                                         : "messages need one; give a model that brings it, or write them as text"));
  return PromptWriter(*std::move(tokenizer), *std::move(chat), options.chat);
}

absl::Status check_task(TrainOptions& options, const Task& task, const PromptWriter& prompts) {
  BASCULE_ASSIGN(const ModelConfig config, read_config(options.model));
  if (options.supervised && config.eos_token_ids.empty())
    return invalid_argument("--model=", options.model.string(),
                            ": config.json: expected an eos_token_id, found none; answers need an end token");
  RowTokens rows{.shortest_prompt = std::numeric_limits<std::int64_t>::max(),
                 .completion = options.supervised ? 0 : options.max_tokens};
  const auto look = [&](const Problem& problem, std::int64_t prompt_tokens) {
    rows.shortest_prompt = std::min(rows.shortest_prompt, prompt_tokens);
    rows.longest_prompt = std::max(rows.longest_prompt, prompt_tokens);
    if (!options.supervised) return absl::OkStatus();
    BASCULE_ASSIGN(const std::int64_t answer, check_sft_target(prompts, config, problem, prompt_tokens));
    rows.completion = std::max(rows.completion, answer);
    return absl::OkStatus();
  };
  const auto check = [&](std::string_view flag, const std::string& value, const std::vector<Problem>& problems) {
    return of_flag(check_prompts(problems, prompts, config.vocab_size, look), flag, value,
                   "give problems that the model can read, as --data=problems.jsonl");
  };
  const bool from_file = options.task == "data", two_files = !options.eval_data.empty();
  const std::string_view flag = from_file ? "data" : "task";
  const std::string value = from_file ? options.data.string() : options.task;
  BASCULE_TRY(check(flag, value, task.train));
  options.rows = rows;
  return check(two_files ? "eval-data" : flag, two_files ? options.eval_data.string() : value, task.held_out);
}

}  // namespace bascule::ref
