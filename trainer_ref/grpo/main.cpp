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
#include <bascule/trainer_ref/grpo/merge.h>
#include <bascule/trainer_ref/grpo/options/parse_train_flags.h>
#include <bascule/trainer_ref/grpo/options/run_plan.h>
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
      "--spawn-engines also starts them.\n"
      "SIGTERM, SIGINT or SIGHUP ends the run after the current step, with a checkpoint; a second one, a second later "
      "or more, ends it at once.");
  return info;
}

// When the first stop signal came, in milliseconds of the monotonic clock; 0: none came.
std::atomic<std::int64_t> stop_requested_at = 0;

// Signals within one second count as one: a closing terminal signals both us and the script that started us, which
// passes its signal on.
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
absl::Status log_failure;  // the first, reported at the end: a run is worth more than its log

void log_line(std::string_view line) {  // from any thread
  const std::lock_guard lock(log_mutex);
  log_failure.Update(bascule::print(bascule::cat(line, "\n")));
}

constexpr int kStoppedStatus = 130;  // of a supervised run that a signal ended, as in shells

bool training = false;  // all flags have been checked

bool stopped() { return stop_requested_at != 0; }

// The name under which engines serve the run's adapter; empty if they get whole models.
std::string adapter_name_of(const TrainFlags& flags) {
  return flags.lora.on && flags.lora.sync == LoraSync::kAdapters ? flags.lora.name : "";
}

// The engines of --spawn-engines, with `model`. Their weights come from `sync`; with --sync=none they are of the model,
// or of the adapter in the folder `sync`.
absl::StatusOr<std::vector<SpawnedEngine>> engines_of(const TrainFlags& flags, const std::string& model,
                                                      const std::string& sync,
                                                      const std::vector<std::string>& config_files) {
  const SpawnFlags& spawn = flags.engines.spawn;
  return engines_to_spawn(spawn,
                          {.model = model,
                           .sync = sync,
                           .adapter = adapter_name_of(flags),
                           .is_active = flags.atropos.on(),
                           .base = flags.lora.base,
                           .device = flags.compute.device.str(),
                           .threads = engine_threads(flags.engines.threads, kernels::usable_cores(), spawn.engines),
                           .config_files = config_files});
}

// Starts the engines, or the ones that run with their next commands, and blocks until they listen.
absl::StatusOr<std::vector<std::string>> start_engines(const TrainFlags& flags, std::vector<SpawnedEngine> next,
                                                       std::unique_ptr<SpawnedEngines>& engines) {
  if (engines == nullptr) {
    engines = std::make_unique<SpawnedEngines>(SpawnOptions{.engines = std::move(next),
                                                            .max_restarts = flags.engines.spawn.max_restarts,
                                                            .start_timeout = flags.engines.start_timeout,
                                                            .log = log_line});
  } else {
    SpawnedEngines::Commands commands;
    for (SpawnedEngine& engine : next) commands.push_back(std::move(engine.command));
    engines->restart(std::move(commands));
  }
  BASCULE_ASSIGN(std::vector<std::string> urls, engines->wait_until_listening(stopped));
  training = true;
  return urls;
}

absl::Status run_grpo(const TrainFlags& flags, StartPoint start, const std::vector<std::string>& config_files) {
  BASCULE_ASSIGN(const RunFolder folder, RunFolder::take(flags.out, flags.resume));
  std::unique_ptr<PrivateEndpoint> endpoint;
  std::unique_ptr<SpawnedEngines> engines;  // outlives the trainer, which requests their URLs
  const bool spawns = flags.engines.spawn.engines > 0;
  std::string sync = flags.engines.sync;
  if (spawns && sync.empty() && !flags.engines.restarts) {
    BASCULE_ASSIGN(endpoint, PrivateEndpoint::make());
    sync = endpoint_in(endpoint->folder().string(), flags.engines.spawn, flags.compute.device.str());
  }
  // An engine that is lost for good ends the run as a signal does: after the step, with a checkpoint.
  const auto ends = [&engines] { return stopped() || (engines && !engines->failure().ok()); };
  std::atomic<bool> is_over = false;  // then the engines' leaving is not logged
  TrainerHooks hooks{.stopped = ends, .signalled = stopped, .log = [&is_over](std::string_view line) {
                       if (!is_over) log_line(line);
                     }};
  if (spawns) {
    hooks.engine_url = [&engines](std::size_t engine) { return engines->url(engine); };
    const auto start_with = [&](const std::string& model,
                                const std::string& weights) -> absl::StatusOr<std::vector<std::string>> {
      BASCULE_ASSIGN(std::vector<SpawnedEngine> next, engines_of(flags, model, weights, config_files));
      return start_engines(flags, std::move(next), engines);
    };
    hooks.start_engines = [start_with, model = start.model.string(), sync] { return start_with(model, sync); };
    if (flags.engines.restarts) {
      hooks.start_engines = nullptr;
      hooks.restart_engines = [&flags, start_with, model = start.model.string()](const std::filesystem::path& folder) {
        return flags.lora.on ? start_with(model, folder.string()) : start_with(folder.string(), "");
      };
    }
  }
  BASCULE_ASSIGN(const std::unique_ptr<Trainer> trainer,
                 Trainer::create(flags, std::move(start), std::move(sync), std::move(hooks)));
  training = !spawns;  // engines may still refuse their flags
  const absl::Status status = trainer->run();
  if (!engines) return status;
  const absl::Status lost = engines->failure();
  is_over = true;
  engines->end();
  if (!lost.ok() && !status.ok() && status != lost) log_line(message_of(status));
  return lost.ok() ? status : lost;
}

absl::Status run(const TrainFlags& flags, StartPoint start, const std::vector<std::string>& config_files) {
  try {
    if (flags.dry_run) return dry_run(flags, std::move(start), log_line);
    if (flags.supervised)
      return run_supervised(flags, std::move(start),
                            {.log = log_line, .stopped = stopped, .began = [] { training = true; }});
    return run_grpo(flags, std::move(start), config_files);
  } catch (const c10::Error& error) {
    return device_failed(flags.compute.device, error);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "this machine has no memory left for the trainer; --dry-run says how much it takes");
  } catch (const std::exception& error) {  // no thread could be started
    return absl::InternalError(bascule::cat("the trainer failed: ", error.what()));
  }
}

int merge_only(const MergeFlags& flags) {
  absl::Status status;
  try {
    status = merge_adapter(flags.adapter, flags.model, flags.out, flags.dtype);
  } catch (const std::exception& error) {  // no memory
    status = absl::ResourceExhaustedError(bascule::cat("merging failed: ", error.what()));
  }
  if (absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) refuse(program(), status);
  if (!status.ok()) std::cerr << "bascule-train: " << bascule::message_of(status) << std::endl;
  return status.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  bascule::let_writes_fail();
  bascule::raise_descriptor_limit();
  const ParsedFlags parsed = parse_flags_or_exit(program(), argc, argv);
  const absl::StatusOr<std::optional<MergeFlags>> merge = parse_merge_flags();
  if (!merge.ok()) refuse(program(), merge.status());
  if (*merge) return merge_only(**merge);
  const absl::StatusOr<TrainFlags> flags = parse_train_flags(log_line);
  if (!flags.ok()) refuse(program(), flags.status());
  absl::StatusOr<StartPoint> start = read_start(*flags);
  if (!start.ok()) refuse(program(), start.status());
  const absl::Status model = read_config(start->model).status();
  if (!model.ok()) refuse(program(), of_flag(model, "model", start->model.string(), kModelAdvice));
  at::set_num_threads(flags->engines.threads);  // before the first operation: pools never shrink
  if (!flags->dry_run)                          // a dry run may end at once
    for (const int signal : bascule::stop_signals()) stop_on(signal);
  absl::Status status = run(*flags, *std::move(start), parsed.config_files);
  const std::lock_guard lock(log_mutex);
  status.Update(log_failure);
  if (status.ok()) return 0;
  if (absl::IsInvalidArgument(status) && !training) refuse(program(), status);
  std::cerr << "bascule-train: " << bascule::message_of(status) << std::endl;
  return absl::IsCancelled(status) ? kStoppedStatus : 1;
}
