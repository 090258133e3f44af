#include <bascule/trainer_ref/grpo/process/spawn_options.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_split.h"
#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/program/axolotl_config.h>
#include <bascule/trainer_ref/program/sections.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/config_file.h>
#include <bascule/transport/status.h>

ABSL_FLAG(int, spawn_engines, 0,
          "Start this many engines, engine-0, engine-1, …, on ports that the system chooses; pass their output on, "
          "restart those that die, and end them with this program. Leave out --engines; --sync is optional: by default "
          "weights go through a private folder by shm, or by cuda-ipc if all compute on GPUs");
ABSL_FLAG(std::string, engine_program, "", "The program of --spawn-engines; empty: bascule-engine beside this program");
ABSL_FLAG(
    std::string, engine_flags, "",
    "Further flags of each engine of --spawn-engines, separated by blanks, such as --engine-flags='--max-batch=64 "
    "--verbose'; they override all others");
ABSL_FLAG(std::vector<std::string>, engine_device, {},
          "Devices of the engines of --spawn-engines, assigned in turn: cpu, cuda:N or a list such as cuda:1,cuda:2; "
          "empty: the trainer's --device");
ABSL_FLAG(std::string, engine_dtype, "f32",
          "Type of the weights in the engines of --spawn-engines: f32, or bf16, to which they are cast while they are "
          "packed (if --sync is given, by its ?wire_dtype=bf16)");
ABSL_FLAG(int, max_engine_restarts, 3,
          "How often an engine of --spawn-engines may be restarted within an hour; if it dies once more, the run ends "
          "with a checkpoint");

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEngines = 1024;

std::string engine_program_of(const SpawnFlags& flags) {
  if (!flags.program.empty()) return flags.program;
  std::error_code error;
  return (fs::read_symlink("/proc/self/exe", error).parent_path() / "bascule-engine").string();
}

// Returns the flags' names in the "engine" objects of config files.
absl::StatusOr<std::set<std::string>> set_by_files(const std::vector<std::string>& files) {
  std::set<std::string> names;
  for (const std::string& file : files) {
    BASCULE_ASSIGN(std::vector<ConfigEntry> read, read_config_file(file));
    BASCULE_ASSIGN(const std::vector<ConfigEntry> entries, from_axolotl(std::move(read)));
    for (const ConfigEntry& entry : entries) {
      if (entry.name != kEngineSection) continue;
      BASCULE_ASSIGN(const std::vector<ConfigEntry> own, entries_of(entry));
      for (const ConfigEntry& flag : own) names.insert(flag.name);
    }
  }
  return names;
}

}  // namespace

absl::StatusOr<SpawnFlags> spawn_flags() {
  SpawnFlags flags{.engines = absl::GetFlag(FLAGS_spawn_engines),
                   .program = absl::GetFlag(FLAGS_engine_program),
                   .flags = absl::StrSplit(absl::GetFlag(FLAGS_engine_flags), ' ', absl::SkipWhitespace()),
                   .devices = absl::GetFlag(FLAGS_engine_device),
                   .dtype = absl::GetFlag(FLAGS_engine_dtype),
                   .max_restarts = absl::GetFlag(FLAGS_max_engine_restarts)};
  const std::string none = "it is for engines that the run starts; add --spawn-engines, or leave it out";
  FlagChecks checks;
  checks.between("spawn-engines", flags.engines, 0, kMostEngines, 2)
      .that(flags.engines > 0 || flags.program.empty(), "engine-program", flags.program, none)
      .that(flags.engines > 0 || flags.flags.empty(), "engine-flags", absl::GetFlag(FLAGS_engine_flags), none)
      .that(flags.engines > 0 || flags.devices.empty(), "engine-device", "…", none)
      .one_of("engine-dtype", flags.dtype, {"f32", "bf16"})
      .that(flags.engines > 0 || flags.dtype == "f32", "engine-dtype", flags.dtype, none)
      .between("max-engine-restarts", flags.max_restarts, 0, 1000, 3);
  for (const std::string& word : flags.flags)
    checks.that(word.starts_with("--") && word.size() > 2, "engine-flags", word,
                "expected flags of bascule-engine separated by blanks, as --engine-flags='--max-batch=64 --verbose'; "
                "in a config file they may have blanks");
  if (!checks.status().ok()) return checks.status();
  return flags;
}

std::string endpoint_in(const std::string& folder, const SpawnFlags& flags, const std::string& trainer_device) {
  const auto on_host = [](const std::string& device) { return device == "cpu"; };
  const bool gpus = !on_host(trainer_device) && std::none_of(flags.devices.begin(), flags.devices.end(), on_host);
  return cat(plainest_endpoint(gpus ? ComputesOn::kGpu : ComputesOn::kHost, folder),
             flags.dtype == "f32" ? "" : cat("?wire_dtype=", flags.dtype));
}

absl::StatusOr<std::vector<SpawnedEngine>> engines_to_spawn(const SpawnFlags& flags, const SpawnPlace& place) {
  const std::string program = engine_program_of(flags);
  if (::access(program.c_str(), X_OK) != 0)
    return invalid_argument("--engine-program=", flags.program, ": expected a program that may be run, found none at ",
                            program, "; give it, as --engine-program=build/release/bin/bascule-engine");
  BASCULE_ASSIGN(const std::set<std::string> by_files, set_by_files(place.config_files));
  std::vector<SpawnedEngine> engines;
  for (int i = 0; i < flags.engines; ++i) {
    const std::string name = cat("engine-", i);
    std::vector<std::string> command{program};
    for (const std::string& file : place.config_files) command.push_back(cat("--config=", file));
    for (const std::string& word :
         {cat("--model=", place.model), cat("--sync=", place.adapter.empty() ? place.sync : ""), cat("--worker=", name),
          std::string("--listen=127.0.0.1:0")})
      command.push_back(word);
    if (!place.adapter.empty()) command.push_back(cat("--adapter=", place.adapter, "=", place.sync));
    if (!place.adapter.empty() && place.is_active) command.push_back(cat("--active-adapter=", place.adapter));
    if (!place.base.empty()) command.push_back(cat("--base=", place.base));
    if (!by_files.contains("threads")) command.push_back(cat("--threads=", place.threads));
    const std::size_t devices = flags.devices.size();
    if (devices > 0)
      command.push_back(cat("--device=", flags.devices[static_cast<std::size_t>(i) % devices]));
    else if (!by_files.contains("device"))
      command.push_back(cat("--device=", place.device));
    if (flags.dtype != "f32") command.push_back(cat("--dtype=", flags.dtype));
    command.insert(command.end(), flags.flags.begin(), flags.flags.end());
    engines.push_back({.name = name, .command = std::move(command)});
  }
  return engines;
}

}  // namespace bascule::ref
