// --spawn-engines and its kin: the engines that a run of bascule-train starts itself.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/process/spawned_engines.h>

namespace bascule::ref {

// What a run is told of them.
struct SpawnFlags {
  int engines = 0;                        // none
  std::string program = {};               // of an engine; empty: beside this one
  std::vector<std::string> flags = {};    // more of them, of every engine
  std::vector<std::string> devices = {};  // in turn; empty: the trainer's
  std::string dtype = "f32";              // of their weights
  int max_restarts = 3;
};

// INVALID_ARGUMENT names the flag that makes no sense, and what would.
absl::StatusOr<SpawnFlags> spawn_flags();

// What of the run its engines must know.
struct SpawnPlace {
  std::string model = {}, sync = {};
  std::string device = {};                     // the trainer's
  int threads = 1;                             // of each engine
  std::vector<std::string> config_files = {};  // the trainer's, which are the engines', too
};

// In `folder`: over shm or, where the trainer and every engine compute on GPUs, over cuda-ipc; cast for the engines.
std::string endpoint_in(const std::string& folder, const SpawnFlags& flags, const std::string& trainer_device);

// The engines as they are started. Their flags come, and win, in this order: the environment and config files, which
// they read themselves; what the run needs (model, sync, worker, listen, device, threads); --engine-flags. But "device"
// and "threads" in the "engine" object of a config file win over the run's. INVALID_ARGUMENT: no such program, or a
// config file that cannot be read.
absl::StatusOr<std::vector<SpawnedEngine>> engines_to_spawn(const SpawnFlags& flags, const SpawnPlace& place);

}  // namespace bascule::ref
