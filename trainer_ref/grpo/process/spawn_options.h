// --spawn-engines and related flags: the engines that a run of bascule-train starts itself.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/process/spawned_engines.h>

namespace bascule::ref {

// The flags of spawned engines.
struct SpawnFlags {
  int engines = 0;                        // none
  std::string program = {};               // an engine's program; empty: the one beside this program
  std::vector<std::string> flags = {};    // further flags of every engine
  std::vector<std::string> devices = {};  // assigned in turn; empty: the trainer's
  std::string dtype = "f32";              // the type of the engines' weights
  int max_restarts = 3;
};

// INVALID_ARGUMENT names the wrong flag and a value that is right.
absl::StatusOr<SpawnFlags> spawn_flags();

// The run's settings that its engines need.
struct SpawnPlace {
  std::string model = {}, sync = {};
  std::string adapter = {};                    // if not empty: `sync` is the endpoint of the adapter of this name
  bool is_active = false;                      // requests that name no adapter also get it
  std::string base = {};                       // if not empty: the base whose weights the engines map
  std::string device = {};                     // the trainer's
  int threads = 1;                             // of each engine
  std::vector<std::string> config_files = {};  // the trainer's, which the engines also read
};

// Returns an endpoint in `folder`: cuda-ipc if the trainer and every engine compute on GPUs, else shm. The endpoint
// casts weights to the engines' type.
std::string endpoint_in(const std::string& folder, const SpawnFlags& flags, const std::string& trainer_device);

// Returns the engines to start. Their flags come from these sources, where a later one overrides an earlier one: the
// environment and config files, which they read themselves; the run (model, sync, worker, listen, device, threads);
// --engine-flags. But "device" and "threads" in the "engine" object of a config file override the run's. Returns
// INVALID_ARGUMENT if there is no such program, or a config file cannot be read.
absl::StatusOr<std::vector<SpawnedEngine>> engines_to_spawn(const SpawnFlags& flags, const SpawnPlace& place);

}  // namespace bascule::ref
