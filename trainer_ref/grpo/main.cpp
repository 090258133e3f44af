// bascule-train: GRPO with engines that it sends its weights to, or supervised training of a checkpoint to start from.
#include <ATen/Parallel.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <mutex>

#include "trainer_ref/grpo/options.h"
#include "trainer_ref/grpo/supervised.h"
#include "trainer_ref/grpo/trainer.h"
#include "trainer_ref/model/checkpoint.h"
#include "trainer_ref/program/flags.h"
#include "transport/text.h"

namespace {

using namespace bascule::ref;

const ProgramInfo kProgram{
    .name = "bascule-train",
    .summary =
        "trains a checkpoint by GRPO. Completions come from engines over HTTP, weights go to them over Bascule.\n"
        "SIGTERM or SIGINT ends the run after the current step, with a checkpoint; a second one at once."};

std::atomic<bool> stop_requested = false;

extern "C" void on_stop_signal(int) { stop_requested = true; }

void stop_on(int signal) {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(signal, &action, nullptr);
}

void log_line(std::string_view line) {  // from any thread
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::cout << line << std::endl;
}

bool stopped() { return stop_requested; }

absl::Status run_supervised(const TrainOptions& options) {
  BASCULE_ASSIGN(const ModelConfig config, read_config(options.model));
  BASCULE_ASSIGN(const Tokenizer tokenizer, Tokenizer::read(options.model));
  BASCULE_ASSIGN(const Task task, read_task_of(options));
  absl::StatusOr<Policy> policy = Policy::read(options.model, Policy::Gradients::kTracked, options.device);
  if (absl::IsNotFound(policy.status())) {
    log_line("no weights in the folder of --model: starting from random ones");
    policy = random_policy(config, options.seed, options.device);
  }
  if (!policy.ok()) return policy.status();
  BASCULE_TRY(train_supervised(*policy, tokenizer, task,
                               {.steps = options.steps,
                                .problems_per_step = options.prompts_per_step,
                                .label_noise = options.label_noise,
                                .seed = options.seed,
                                .optimizer = options.optimizer,
                                .log = log_line,
                                .stopped = stopped}));
  BASCULE_ASSIGN(const double accuracy, greedy_accuracy(*policy, tokenizer, task.held_out));
  log_line(bascule::cat("held out: ", accuracy, " right when each token is the likeliest"));
  return write_checkpoint(options.out, options.model, policy->weights(), bascule::DType::kBF16);
}

absl::Status run_grpo(TrainOptions options) {
  BASCULE_ASSIGN(const std::unique_ptr<Trainer> trainer, Trainer::create(std::move(options), stopped, log_line));
  return trainer->run();
}

absl::Status run(TrainOptions options) {
  try {
    return options.supervised ? run_supervised(options) : run_grpo(std::move(options));
  } catch (const c10::Error& error) {  // no memory, a device that failed
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  }
}

}  // namespace

int main(int argc, char** argv) {
  parse_flags_or_exit(kProgram, argc, argv);
  absl::StatusOr<TrainOptions> options = options_from_flags();
  if (!options.ok()) refuse(kProgram, options.status());
  at::set_num_threads(options->threads);  // before the first operation: pools never shrink
  stop_on(SIGTERM);
  stop_on(SIGINT);
  const absl::Status status = run(*std::move(options));
  if (status.ok()) return 0;
  std::cerr << "bascule-train: " << bascule::message_of(status) << std::endl;
  return 1;
}
