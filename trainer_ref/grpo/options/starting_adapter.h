// The adapter with which a run starts.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/options/train_flags.h>
#include <bascule/trainer_ref/model/adapter.h>

namespace bascule::ref {

// Reads the adapter of --adapter or --resume, or makes a new one for `model`, the folder of the base model. For a run
// with flags.lora.on. INVALID_ARGUMENT names the flag.
absl::StatusOr<Adapter> starting_adapter(const TrainFlags& flags, const std::filesystem::path& model);

// Returns OK if --resume can continue with these flags: it is a checkpoint of the same kind, and --lora-* do not
// contradict the adapter's config.
absl::Status check_resumed_adapter(const TrainFlags& flags);

}  // namespace bascule::ref
