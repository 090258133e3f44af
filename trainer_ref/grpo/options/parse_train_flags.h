// The command line of bascule-train as TrainFlags.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/options/train_flags.h>

namespace bascule::ref {

// Opens --device, which takes seconds; logs the device that --device=auto selects. INVALID_ARGUMENT names the wrong
// flag and a value that is right.
absl::StatusOr<TrainFlags> parse_train_flags(const std::function<void(std::string_view)>& log = [](std::string_view) {
});

// --merge, which trains nothing and needs none of the other flags.
struct MergeFlags {
  std::filesystem::path adapter, model, out;
  DType dtype = DType::kBF16;
};
// Returns nullopt without --merge. INVALID_ARGUMENT names the flag.
absl::StatusOr<std::optional<MergeFlags>> parse_merge_flags();

}  // namespace bascule::ref
