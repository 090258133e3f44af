// The problems of a run, by its options.
#include <bascule/trainer_ref/grpo/options.h>
#include <bascule/trainer_ref/grpo/prompt.h>
#include <bascule/trainer_ref/model/config.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/text.h>

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

absl::Status check_task(const TrainOptions& options, const Task& task, const Tokenizer& tokenizer) {
  constexpr std::string_view kAdvice = "give problems that the model can read, as --data=problems.jsonl";
  BASCULE_ASSIGN(const ModelConfig config, read_config(options.model));
  const bool from_file = options.task == "data", two_files = !options.eval_data.empty();
  const std::string data = from_file ? options.data.string() : options.task;
  BASCULE_TRY(
      of_flag(check_prompts(task.train, tokenizer, config.vocab_size), from_file ? "data" : "task", data, kAdvice));
  return of_flag(check_prompts(task.held_out, tokenizer, config.vocab_size),
                 two_files ? "eval-data" : (from_file ? "data" : "task"), two_files ? options.eval_data.string() : data,
                 kAdvice);
}

}  // namespace bascule::ref
