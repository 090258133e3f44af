// How a Trainer comes to be: reading what it needs, and what a resumed run left.
#include <fstream>

#include "trainer_ref/grpo/trainer.h"
#include "transport/libtorch/tensors.h"
#include "transport/text.h"

namespace bascule::ref {
namespace {

// A prompt that the tokenizer cannot write is found now, and not in the middle of a run.
absl::Status check_prompts(const Task& task, const Tokenizer& tokenizer) {
  for (const std::vector<Problem>* side : {&task.train, &task.held_out})
    for (const Problem& problem : *side)
      if (const absl::Status status = tokenizer.encode(problem.prompt).status(); !status.ok())
        return annotate(status, cat("prompt ", nlohmann::json(problem.prompt).dump()));
  return absl::OkStatus();
}

// The policy's tensors themselves: what the optimizer writes is what the next send reads.
std::unique_ptr<TensorSource> source_of(const Policy& policy) {
  return libtorch::tensors({policy.weights().begin(), policy.weights().end()});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::create(TrainOptions options, std::function<bool()> stopped,
                                                         std::function<void(std::string_view)> log) {
  BASCULE_ASSIGN(Task task, read_task_of(options));
  BASCULE_ASSIGN(Tokenizer tokenizer, Tokenizer::read(options.model));
  BASCULE_TRY(check_prompts(task, tokenizer));
  BASCULE_ASSIGN(Policy policy, Policy::read(options.resume.empty() ? options.model : options.resume,
                                             Policy::Gradients::kTracked, options.device));
  BASCULE_ASSIGN(Sender sender, Sender::listen({.endpoint = options.sync, .threads = options.threads, .log = log}));
  BASCULE_TRY(sender.register_model(source_of(policy)));

  std::unique_ptr<Trainer> trainer(
      new Trainer(std::move(options), std::move(task), std::move(tokenizer), std::move(policy), std::move(sender)));
  trainer->stopped_ = std::move(stopped);
  trainer->log_ = std::move(log);
  if (trainer->options_.needs_reference()) {
    BASCULE_ASSIGN(trainer->reference_,
                   Policy::read(trainer->options_.model, Policy::Gradients::kNone, trainer->options_.device));
  }
  if (!trainer->options_.resume.empty()) BASCULE_TRY(trainer->resume());
  return trainer;
}

Trainer::Trainer(TrainOptions options, Task task, Tokenizer tokenizer, Policy policy, Sender sender)
    : options_(std::move(options)),
      task_(std::move(task)),
      tokenizer_(std::move(tokenizer)),
      policy_(std::move(policy)),
      optimizer_(policy_.weights(), options_.optimizer),
      sender_(std::move(sender)) {}

absl::Status Trainer::resume() {
  BASCULE_ASSIGN(const RunState state, read_run_state(options_.resume));
  if (state.seed != options_.seed)
    return invalid_argument("--seed=", options_.seed, ": ", options_.resume.string(),
                            " was trained with --seed=", state.seed, "; a run that goes on keeps its seed");
  if (state.step >= options_.steps)
    return invalid_argument("--steps=", options_.steps, ": ", options_.resume.string(), " is at step ", state.step,
                            " already; give a later last step");
  BASCULE_TRY(restore_optimizer(options_.resume, state, optimizer_));
  last_step_ = saved_step_ = state.step;
  saved_ = options_.resume;
  return absl::OkStatus();
}

// A new run starts its files afresh, a resumed one goes on behind its step.
absl::Status Trainer::start_log() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(options_.out, error);
  if (error) return invalid_argument("--out=", options_.out.string(), ": ", error.message());
  for (const char* name : {"metrics.jsonl", "completions.jsonl"}) {
    if (last_step_ == 0)
      fs::remove(options_.out / name, error);
    else
      BASCULE_TRY(keep_steps(options_.out / name, last_step_));
  }
  if (const auto lines = read_json_lines(options_.out / "metrics.jsonl"); lines.ok() && !lines->empty())
    elapsed_before_ = lines->back().value("elapsed_seconds", 0.0);

  nlohmann::json run{{"about", options_.about}, {"engines", options_.engines}, {"sync", options_.sync}};
  for (const auto& [name, value] : flags_given()) run["flags"][name] = value;
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : policy_.weights()) parameters += tensor.numel();
  run["parameters"] = parameters;
  std::ofstream stream(options_.out / "run.json");
  stream << run.dump(2) << '\n';
  if (!stream.flush()) return unavailable("cannot write ", (options_.out / "run.json").string());
  return absl::OkStatus();
}

}  // namespace bascule::ref
