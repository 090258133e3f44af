// bascule-train: GRPO with engines that it sends its weights to, or supervised training of a checkpoint to start from.
#include <ATen/Parallel.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <mutex>
#include <new>

#include <bascule/kernels/control_group.h>
#include <bascule/trainer_ref/grpo/dry_run.h>
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/options/options.h>
#include <bascule/trainer_ref/grpo/process/engine_threads.h>
#include <bascule/trainer_ref/grpo/process/private_endpoint.h>
#include <bascule/trainer_ref/grpo/process/spawned_engines.h>
#include <bascule/trainer_ref/grpo/run/run_folder.h>
#include <bascule/trainer_ref/grpo/supervised_run.h>
#include <bascule/trainer_ref/grpo/trainer.h>
#include <bascule/trainer_ref/program/pair.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/descriptors.h>
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>

namespace {

using namespace bascule;
using namespace bascule::ref;

const ProgramInfo& program() {
  static const ProgramInfo info = train_program(
      "trains a checkpoint by GRPO. It gets completions from engines over HTTP and sends weights to them by Bascule; "
      "--spawn-engines starts them, too.\n"
      "SIGTERM, SIGINT or SIGHUP ends the run after the current step, with a checkpoint; a second one, a second later "
      "or more, ends it at once.");
  return info;
}

// When the first of them came, in milliseconds of the monotonic clock; 0: none came.
std::atomic<std::int64_t> stop_requested_at = 0;

// Two within a second are one wish: a terminal that closes tells the script that started us, and us, and the script
// tells us, too.
extern "C" void on_stop_signal(int signal) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
  std::int64_t first = 0;
  if (stop_requested_at.compare_exchange_strong(first, now) || now - first < 1000) return;
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void stop_on(int signal) {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

std::mutex log_mutex;
absl::Status log_failure;  // the first, said at the end: a run is worth more than its log

void log_line(std::string_view line) {  // from any thread
  const std::lock_guard lock(log_mutex);
  log_failure.Update(bascule::print(bascule::cat(line, "\n")));
}

constexpr int kStoppedStatus = 130;  // of a supervised run that a signal ended, as shells have it

bool training = false;  // flags that make no sense have been found by then

bool stopped() { return stop_requested_at != 0; }

// The engines of --spawn-engines, which listen.
absl::StatusOr<std::unique_ptr<SpawnedEngines>> start_engines(const TrainOptions& options) {
  SpawnOptions spawn{
      .max_restarts = options.spawn.max_restarts, .start_timeout = options.engine_timeout, .log = log_line};
  const int threads = engine_threads(options.threads, kernels::usable_cores(), options.spawn.engines);
  BASCULE_ASSIGN(spawn.engines, engines_to_spawn(options.spawn, {.model = options.model.string(),
                                                                 .sync = options.sync,
                                                                 .device = options.device.str(),
                                                                 .threads = threads,
                                                                 .config_files = options.config_files}));
  return std::make_unique<SpawnedEngines>(std::move(spawn));
}

absl::Status run_grpo(TrainOptions options) {
  BASCULE_ASSIGN(const RunFolder folder, RunFolder::take(options.out, options.resume));
  std::unique_ptr<PrivateEndpoint> endpoint;
  std::unique_ptr<SpawnedEngines> engines;  // longer than the trainer, which asks where they are
  const bool spawns = options.spawn.engines > 0;
  if (spawns && options.sync.empty()) {
    BASCULE_ASSIGN(endpoint, PrivateEndpoint::make());
    options.sync = endpoint_in(endpoint->folder().string(), options.spawn, options.device.str());
  }
  // An engine that is lost for good ends the run as a signal does: after the step, with a checkpoint.
  const auto ends = [&engines] { return stopped() || (engines && !engines->failure().ok()); };
  if (spawns) {
    options.engine_url = [&engines](std::size_t engine) { return engines->url(engine); };
    options.start_engines = [&engines, options]() -> absl::StatusOr<std::vector<std::string>> {
      BASCULE_ASSIGN(engines, start_engines(options));
      BASCULE_ASSIGN(std::vector<std::string> urls, engines->wait_until_listening(stopped));
      training = true;
      return urls;
    };
  }
  std::atomic<bool> is_over = false;  // that the engines leave is no news then
  const auto log = [&is_over](std::string_view line) {
    if (!is_over) log_line(line);
  };
  BASCULE_ASSIGN(const std::unique_ptr<Trainer> trainer, Trainer::create(std::move(options), ends, log));
  training = !spawns;  // engines may still refuse their flags
  const absl::Status status = trainer->run();
  if (!engines) return status;
  const absl::Status lost = engines->failure();
  is_over = true;
  engines->end();
  if (!lost.ok() && !status.ok() && status != lost) log_line(message_of(status));
  return lost.ok() ? status : lost;
}

absl::Status run(TrainOptions options) {
  const at::Device device = options.device;
  try {
    if (options.dry_run) return dry_run(options, log_line);
    if (options.supervised)
      return run_supervised(std::move(options),
                            {.log = log_line, .stopped = stopped, .began = [] { training = true; }});
    return run_grpo(std::move(options));
  } catch (const c10::Error& error) {
    return device_failed(device, error);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "this machine has no memory left for the trainer; --dry-run says how much it takes");
  } catch (const std::exception& error) {  // no thread could be started
    return absl::InternalError(bascule::cat("the trainer failed: ", error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  bascule::let_writes_fail();
  bascule::raise_descriptor_limit();
  const ParsedFlags flags = parse_flags_or_exit(program(), argc, argv);
  absl::StatusOr<TrainOptions> options = options_from_flags(log_line);
  if (!options.ok()) refuse(program(), options.status());
  options->config_files = flags.config_files;
  const absl::Status model = read_config(options->model).status();
  if (!model.ok()) refuse(program(), of_flag(model, "model", options->model.string(), kModelAdvice));
  at::set_num_threads(options->threads);  // before the first operation: pools never shrink
  if (!options->dry_run)                  // which has nothing to lose
    for (const int signal : bascule::stop_signals()) stop_on(signal);
  absl::Status status = run(*std::move(options));
  const std::lock_guard lock(log_mutex);
  status.Update(log_failure);
  if (status.ok()) return 0;
  if (absl::IsInvalidArgument(status) && !training) refuse(program(), status);
  std::cerr << "bascule-train: " << bascule::message_of(status) << std::endl;
  return absl::IsCancelled(status) ? kStoppedStatus : 1;
}
